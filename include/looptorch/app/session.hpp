// SPDX-License-Identifier: MIT
// Does what training programs have in common. A Session chooses the device, locks the output folder, seeds
// the generators, and reads the snapshot to resume from. Then it makes loaders and the standard policies,
// trains, and writes the summary. The program adds model, loss and data:
//
//   app::Session session(options, output);
//   Net net;
//   net->to(session.device());
//   lt::FusedAdamW optimizer(net->parameters(), {.lr = options.learning_rate});
//   lt::Trainer trainer(net, optimizer, loss_of, session.policies(*net), lt::ClipGradNorm{1.0});
//   session.fit(trainer, session.shuffled(clips));
//   session.finish(*net, {{"accuracy", trainer.evaluate(held_out).metrics.at("accuracy")}});
//
// A program that needs only some parts can call them alone: choose_device, OutputFolder, run_policies,
// app::fit, Summary.
#pragma once

#include <looptorch/app/device.hpp>
#include <looptorch/app/device/memory_snapshot.hpp>
#include <looptorch/app/fit.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run/earlier_summary.hpp>
#include <looptorch/app/run/output_folder.hpp>
#include <looptorch/app/run_policies.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/watch_memory.hpp>
#include <looptorch/policies/watching/flop_meter.hpp>
#include <looptorch/state/snapshot/newest_snapshot.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <concepts>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app {

/// Does nothing with a fit's result.
struct NoCallback {
  void operator()(const FitResult&) const {}
};

/// A run of a training program, from its parsed flags to its summary.
class Session {
 public:
  /// Chooses the device, locks the output folder, seeds the generators, and reads the snapshot that --resume
  /// names. From then on the process ignores SIGPIPE, so that no reader of its output can end the run. `read`
  /// lists what the run reads: the output must be none of the folders in it, and hold none of the files.
  /// Throws UsageError for a rehearsal in the folder of a run's result, and what choose_device, OutputFolder
  /// and TrainingOptions::snapshot_to_resume throw.
  Session(TrainingOptions training, std::filesystem::path output,
          const std::vector<std::filesystem::path>& read = {})
      : training_(std::move(training)),
        output_(std::move(output)),
        device_(training_.choose_device()),
        folder_(output_, read),
        snapshot_(training_.snapshot_to_resume(snapshots())) {
    std::signal(SIGPIPE, SIG_IGN);  // `| tee log` ends before its run does, as by Ctrl-C
    if (leads() && !training_.on_by_default.empty()) std::cerr << training_.on_by_default << std::endl;
    check_memory_snapshot(training_.memory_snapshot, device_);
    training_.print_resume(snapshot_);
    if (training_.quick) require_no_result(output_ / "summary.json");
    if (training_.quick && leads())
      std::cerr << "--quick: a rehearsal, with " << training_.few_batches() << " batches of each part"
                << std::endl;
    seed();
  }

  [[nodiscard]] const TrainingOptions& options() const { return training_; }
  /// Replaces the options before loaders and policies are made. Device, folder and snapshot stay.
  void set_options(TrainingOptions training) { training_ = std::move(training); }
  [[nodiscard]] const std::filesystem::path& output() const { return output_; }
  [[nodiscard]] std::filesystem::path snapshots() const { return snapshots_in(output_); }
  [[nodiscard]] at::Device device() const { return device_; }
  /// Returns the snapshot that the run resumes from; one without a path for a new run.
  [[nodiscard]] const NewestSnapshot& snapshot() const { return snapshot_; }
  [[nodiscard]] bool resumes() const { return !snapshot_.path.empty(); }
  /// True if this run replaces what an earlier one left in the output folder: it neither resumes nor replays.
  [[nodiscard]] bool begins_anew() const { return !resumes() && training_.replay.empty(); }
  /// Throws UsageError if a new run would overwrite what it begins with: if the output is the file or folder
  /// `first` that `flag` names, or holds it. A run that resumes has no need of it.
  void require_apart(const std::string& flag, const std::filesystem::path& first) const {
    if (!resumes()) app::require_apart(output_, flag, first);
  }
  /// Returns the seconds since the session was made.
  [[nodiscard]] double seconds() const { return stopwatch_.seconds(); }
  /// Returns the figures of the run, which finish() writes.
  [[nodiscard]] Summary& summary() { return summary_; }

  /// Seeds the generators again. Call it after drawing numbers that the run must not depend on, such as those
  /// of a trial model.
  void seed() const { training_.seed_generators(); }

  /// Returns a loader of this rank's shard of `sampler`: without a sampler, of all samples in order. For
  /// training, and for Validate, which adds the sums of all ranks.
  template <class Dataset, class Sampler = SequentialSampler>
  [[nodiscard]] auto loader(Dataset&& data, Sampler sampler = {}) const {
    return PinnedPrefetchLoader(std::forward<Dataset>(data), training_.loader_options(),
                                shard_of_rank(std::move(sampler)));
  }
  /// Returns a loader of this rank's shard of the samples, in a new order each epoch, drawn from --seed.
  template <class Dataset>
  [[nodiscard]] auto shuffled(Dataset&& data) const {
    return loader(std::forward<Dataset>(data), RandomSampler{.seed = training_.unsigned_seed()});
  }

  /// Returns a loader of all samples in order, on every rank: for figures after the fit, when each rank's
  /// evaluation counts by itself.
  template <class Dataset>
  [[nodiscard]] auto whole(Dataset&& data) const {
    return PinnedPrefetchLoader(std::forward<Dataset>(data), training_.loader_options());
  }

  /// Returns the run_policies for the model.
  [[nodiscard]] auto policies(const torch::nn::Module& model, const RunDetails& details = {}) const {
    return run_policies(training_, output_, model, details);
  }

  /// Trains, from the snapshot if there is one; a second fit continues the first. With --replay, replays a
  /// saved window instead (app::fit). Writes run.conf to the output as the run begins, a file for --config
  /// that repeats the run. Adds the peak of a watched memory to the summary, and the steps in which memory
  /// ran out. Throws Interrupted for a run that a signal or a limit ended, after it has called
  /// `on_result(result)`, which may save the result.
  template <class Trainer, class Batches, std::invocable<const FitResult&> Callback = NoCallback>
  FitResult fit(Trainer& trainer, Batches&& batches, const Callback& on_result = {}) {
    write_config();
    std::optional<MemorySnapshot> record;
    if (!training_.memory_snapshot.empty() && training_.replay.empty())
      record.emplace(training_.memory_snapshot, cuda_memory_record());
    const NewestSnapshot from = std::exchange(has_begun_, true) ? NewestSnapshot{} : snapshot_;
    result_ = app::fit(trainer, std::forward<Batches>(batches), training_, from);
    if constexpr (Trainer::template lists<WatchMemory>())
      set_memory(summary_, trainer.template policy<WatchMemory>());
    if constexpr (Trainer::template lists<RetryOnOom>())
      if (const auto windows = trainer.template policy<RetryOnOom>().windows; windows > 0)
        summary_.set("out_of_memory_steps", windows);
    if constexpr (Trainer::template lists<LogMetrics>())
      flops_ = trainer.template policy<LogMetrics>().flops();
    record.reset();
    on_result(result_);
    throw_if_interrupted(result_);
    return result_;
  }

  /// On rank 0: removes the summary of an earlier call, lets `save(summary)` write what was learnt and set
  /// figures, adds the time and the memory, and writes summary.json. So a folder with a summary is complete;
  /// a rehearsal's summary is marked.
  template <std::invocable<Summary&> Save>
  void finish(Save&& save) {
    if (!leads()) return;
    const EarlierSummary earlier(output_ / "summary.json");
    std::forward<Save>(save)(summary_);
    summary_.set("seconds", seconds()).set("peak_bytes", peak_bytes(device_));
    set_flops();
    for (const auto& [name, cost] : earlier.costs_after(result_)) summary_.set(name, cost);
    if (training_.quick) summary_.set("rehearsal", true);
    summary_.write(output_ / "summary.json");
    if (training_.quick)
      std::cerr << "the rehearsal is through: " << output_.string()
                << " holds no result. Begin the run itself in another folder" << std::endl;
  }
  /// Saves the model's own weights to model.safetensors and writes summary.json with `figures`, the number of
  /// steps, time and memory. Prints the summary to std::cout, and on std::cerr where the weights are, except
  /// of a rehearsal. On rank 0 only.
  void finish(const torch::nn::Module& model, const std::vector<std::pair<std::string, Json>>& figures) {
    const auto weights = output_ / "model.safetensors";
    finish([&](Summary& summary) {
      save_weights(model, weights);
      for (const auto& [name, value] : figures) summary.set(name, value);
      summary.set("steps", result_.steps);
    });
    if (!leads()) return;
    std::cout << summary_.text() << std::endl;
    if (!training_.quick) std::cerr << "the weights are in " << weights.string() << std::endl;
  }

 private:
  /// Adds the FLOPs that LogMetrics has counted, if any.
  void set_flops() {
    if (!flops_) return;
    summary_.set("flops_per_second", flops_->flops_per_second);
    if (flops_->utilization) summary_.set("mfu", *flops_->utilization);
  }

  void write_config() const {
    if (leads() && training_.replay.empty() && !training_.config.empty())
      write_file_atomically(output_ / "run.conf", training_.config);
  }

  Stopwatch stopwatch_;
  TrainingOptions training_;
  std::filesystem::path output_;
  at::Device device_;
  OutputFolder folder_;
  NewestSnapshot snapshot_;
  bool has_begun_ = false;  // a fit has begun: only the first one resumes
  Summary summary_;
  FitResult result_;
  std::optional<looptorch::detail::FlopMeter::Rates> flops_;
};

}  // namespace looptorch::app
