// SPDX-License-Identifier: MIT
// Trains one model on several processes (DDP), each on its part of the data, with the result of one process
// on all of the data. Use it when one machine or one GPU is too slow. Costs one all-reduce of the gradients
// per window, most of it during backward.
//
//   torchrun --nproc-per-node 2 --no-python ./train
//
//   Trainer trainer(net, optimizer, objective, DataParallel{});
//   trainer.fit(shard_of_this_rank, {.epochs = 3});
//
// Read this header first. DataParallel makes a GroupRanks, which implements the loop's interface
// Ranks (loop/ranks.hpp). GroupRanks sums gradients in GradientBuckets, and communicates through the
// ProcessGroup. The ProcessGroup outlives fits and owns RankWatch, whose thread notices lost ranks.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/base/hash/tensor_hash.hpp>
#include <looptorch/base/process/signals.hpp>
#include <looptorch/base/text/hex.hpp>
#include <looptorch/distributed/group_ranks.hpp>
#include <looptorch/distributed/process_group.hpp>
#include <looptorch/distributed/sync_batch_norm.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/ranks/several_ranks.hpp>
#include <looptorch/resume/shard_states.hpp>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

class Freeze;
struct Profile;
struct ScheduleLr;
struct ShardOptimizer;
class UnfreezeAt;

/// How to treat modules whose buffers depend on the batches that they see, as BatchNorm's do.
enum class BatchNormMode {
  refuse,    ///< throws UsageError as the fit begins
  per_rank,  ///< each rank normalises by its own batches; statistics are those of rank 0 when a fit ends
  sync,      ///< statistics over the batches of all ranks, forward and backward, as of one large batch
};

/// All-reduces gradients, weights and losses over the processes that torchrun or Slurm has started. Each rank
/// gives `fit` its own range of batches, of any length. With one process does nothing, unless `reproducible`.
struct DataParallel {
  std::int64_t bucket_bytes = 25 << 20;  ///< Size of a bucket of gradients; at least 1.
  bool overlap = true;                   ///< False: sums gradients after backward, not during it.
  BatchNormMode batch_norm = BatchNormMode::refuse;
  /// How long a rank waits for a slower one before the run ends.
  std::chrono::seconds timeout = std::chrono::minutes(30);
  bool reproducible = false;  ///< The same bits on any number of ranks that divides `chunks`, 1 included.
  std::int64_t chunks = 8;    ///< Number of parts of a reproducible window; a power of two.
  std::uint64_t seed = 0;     ///< Seed of reproducible forwards' random numbers, such as dropout's.

  static constexpr Phase phase = Phase::prepare;
  using runs_before = Before<Profile, ScheduleLr, ShardOptimizer, Freeze, UnfreezeAt>;
  static constexpr bool changes_gradients = true;
  static constexpr ResumeRule resume_rule = ResumeRule::always;

  struct State {
    std::int64_t rank = 0;
    std::int64_t size = 1;
    std::int64_t bytes = 0;       ///< Bytes of gradients that this process added to sums.
    std::int64_t reductions = 0;  ///< Collectives so far.
    bool buffers_compared = false;

    std::shared_ptr<detail::GroupRanks> ranks;
    std::unique_ptr<detail::SignalWatch> signals;  // of ranks without SnapshotEvery, which is muted there
    std::unique_ptr<detail::SyncBatchNormScope> norms;
  };

  /// Connects to the other processes, once in the life of this process.
  Ranks* ranks(const Run&, State& state) const {
    if (bucket_bytes < 1)
      throw UsageError(message("DataParallel needs bucket_bytes of at least 1, got ", bucket_bytes));
    const std::int64_t size = rank_environment().size;
    if (reproducible) require_chunks(size);
    if (!state.ranks && (size > 1 || reproducible))
      state.ranks = std::make_shared<detail::GroupRanks>(
          size > 1 ? &ProcessGroup::of_environment() : nullptr, bucket_bytes, overlap,
          detail::Chunks{.count = reproducible ? chunks : 0, .seed = seed});
    if (!state.ranks) return nullptr;
    state.rank = state.ranks->rank();
    state.size = state.ranks->size();
    state.ranks->begin_fit(timeout, batch_norm == BatchNormMode::sync);
    return state.ranks.get();
  }

  /// Broadcasts the model of rank 0. Throws RanksDiffer for models of other shapes, UsageError for BatchNorm
  /// unless `batch_norm` allows it.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (!state.ranks) return;
    if (batch_norm == BatchNormMode::refuse) refuse_batch_statistics(fit.run.model());
    RankReduction reduction;
    reduction.require_equal("the model", shape_of(fit.run.model()));
    const Progress& progress = fit.run.progress();
    reduction.require_equal("where the fit begins (at a snapshot that they share, if it resumes)",
                            message("step ", progress.step, " in epoch ", progress.epoch));
    if (reproducible)
      reduction.require_equal("DataParallel{.reproducible}", message(chunks, " chunks, seed ", seed, ", ",
                                                                     at::get_num_threads(), " threads"));
    state.ranks->all_reduce(reduction, "the broadcast of the model");
    state.ranks->connect_chunks();
    state.ranks->broadcast(fit.run.model().parameters());
    state.ranks->broadcast(fit.run.model().buffers());
    if (batch_norm == BatchNormMode::sync) synchronise(fit.run.model(), state);
    if (!state.ranks->leads()) state.signals = std::make_unique<detail::SignalWatch>();
  }

  void on_window_end(WindowContext& window, State& state) const {
    if (!state.ranks) return;
    const int signal = state.signals ? state.signals->received() : 0;
    if (signal && !window.run.interruption())
      window.run.interrupt(detail::signal_name(signal) + " was received", signal);
    state.reductions = state.ranks->reductions();
    if (state.size > 1) state.bytes = ProcessGroup::of_environment().bytes_summed();
  }

  /// Warns after a Trainer's first epoch if a forward has written other values to buffers of other ranks.
  void on_epoch_end(EpochContext& epoch, State& state) const {
    if (state.size == 1 || batch_norm == BatchNormMode::per_rank) return;
    if (std::exchange(state.buffers_compared, true)) return;
    const std::string differing = differing_buffers(epoch.run.model(), *state.ranks);
    if (!differing.empty() && state.ranks->leads())
      TORCH_WARN("looptorch: buffers differ among ranks: ", differing,
                 ". Snapshots hold those of rank 0, so that a resumed run is another one. See "
                 "docs/distributed.md#buffers-that-a-forward-writes");
  }

  void on_fit_end(FitContext& fit, State& state) const {
    if (!state.ranks) return;
    state.signals.reset();
    state.norms.reset();
    if (fit.status != FitStatus::failed && batch_norm == BatchNormMode::per_rank)
      state.ranks->broadcast(fit.run.model().buffers());
  }

 private:
  void require_chunks(std::int64_t size) const {
    if (chunks < 1 || (chunks & (chunks - 1)) != 0)
      throw UsageError(message("DataParallel{.reproducible} needs a power of two as `chunks`, got ", chunks));
    if (chunks % size != 0)
      throw UsageError(message("DataParallel{.reproducible} sums ", chunks, " chunks, which ", size,
                               " ranks cannot share evenly: start 1, 2, 4 ... up to ", chunks, " ranks"));
    if (batch_norm != BatchNormMode::refuse)
      throw UsageError(
          "DataParallel{.reproducible} cannot keep batch statistics: they differ with the number of ranks, or "
          "in their last bits. Use GroupNorm or LayerNorm");
  }

  /// Makes layers take statistics over all ranks.
  static void synchronise(const torch::nn::Module& model, State& state) {
    std::int64_t channels = 1;
    std::vector<at::Tensor> running;
    for (const at::Tensor& parameter : model.parameters())
      if (parameter.dim() == 1) channels = std::max(channels, parameter.numel());
    for (const auto& named : model.named_buffers()) {
      if (named.value().dim() == 1) channels = std::max(channels, named.value().numel());
      for (const char* of : {"running_mean", "running_var", "num_batches_tracked"})
        if (named.key().ends_with(of)) running.push_back(named.value());
    }
    state.ranks->connect_statistics(channels, std::move(running));
    state.norms = std::make_unique<detail::SyncBatchNormScope>();
  }

  /// Returns the names of the buffers whose bits differ among the ranks.
  static std::string differing_buffers(const torch::nn::Module& model, detail::GroupRanks& ranks) {
    const auto buffers = model.named_buffers();
    if (buffers.size() == 0) return {};
    std::string hashes;  // of this rank's buffers; after the exchange of all ranks', in their order
    for (const auto& named : buffers) hashes += hex_of(stable_hash(named.value()));
    const std::size_t of_rank = hashes.size(), digits = of_rank / buffers.size();
    RankReduction reduction;
    reduction.append("the hashes of buffers", hashes);
    ranks.all_reduce(reduction, "the comparison of buffers");
    std::string names;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      bool differs = false;
      for (std::size_t at = i * digits; at < hashes.size(); at += of_rank)
        differs |= hashes.compare(at, digits, hashes, i * digits, digits) != 0;
      if (differs) names += (names.empty() ? "" : ", ") + buffers[i].key();
    }
    return names;
  }

  /// Returns the names and shapes of parameters and buffers in short.
  static std::string shape_of(const torch::nn::Module& model) {
    std::int64_t tensors = 0, numbers = 0;
    std::string each;
    const auto add = [&](const auto& named) {
      ++tensors, numbers += named.value().numel();
      each += message(named.key(), named.value().sizes(), named.value().scalar_type(),
                      named.value().device().type(), '\n');
    };
    for (const auto& named : model.named_parameters()) add(named);
    for (const auto& named : model.named_buffers()) add(named);
    return message(tensors, " tensors of ", numbers, " numbers (", hex_of(stable_hash(each)), ")");
  }

  static void refuse_batch_statistics(const torch::nn::Module& model) {
    for (const auto& named : model.named_buffers())
      if (named.key().ends_with("num_batches_tracked"))
        throw UsageError(message("the model has batch statistics (", named.key(),
                                 "), which would differ among ranks: use GroupNorm or LayerNorm, or give "
                                 "DataParallel{.batch_norm = BatchNormMode::sync}"));
  }
};

}  // namespace looptorch
