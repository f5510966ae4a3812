// SPDX-License-Identifier: MIT
// Logs the metrics of each step to a folder: metrics.jsonl, metrics.csv, TensorBoard's event files and
// report.html. A separate thread writes; training never waits for a file or a device, and spends less than a
// microsecond per metric. Not part of policies.hpp, since its headers take long to compile: include it by
// name.
#pragma once

#include <looptorch/base/device/cuda_driver.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/flops/device_peaks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/policies/watching/feed_target.hpp>
#include <looptorch/policies/watching/flop_meter.hpp>
#include <looptorch/policies/watching/metric_feed.hpp>
#include <looptorch/report/machine_facts.hpp>
#include <looptorch/report/metric_log.hpp>
#include <looptorch/report/run_report.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// The most values that represent a parameter in its distribution, evenly spaced.
inline constexpr std::int64_t kDistributionValues = 4096;

/// Returns values of each floating-point parameter, by name. Waits for one copy of all from the device.
[[nodiscard]] inline std::vector<Example> parameter_distributions(const torch::nn::Module& model) {
  const c10::NoGradGuard no_grad;
  std::vector<std::pair<std::string, std::int64_t>> counts;
  std::vector<at::Tensor> parts;
  for (const auto& parameter : model.named_parameters()) {
    const at::Tensor& all = parameter.value();
    if (!all.defined() || all.numel() == 0 || !all.is_floating_point() || all.is_meta()) continue;
    const std::int64_t step = (all.numel() + kDistributionValues - 1) / kDistributionValues;
    const at::Tensor some = all.detach().reshape({-1}).slice(0, 0, all.numel(), step);
    parts.push_back(some.to(parts.empty() ? all.device() : parts.front().device(), at::kFloat));
    counts.emplace_back(parameter.key(), some.numel());
  }
  std::vector<Example> examples;
  if (parts.empty()) return examples;
  const at::Tensor host = at::cat(parts).to(at::kCPU);
  const float* values = host.const_data_ptr<float>();
  for (auto& [name, count] : counts) {
    examples.emplace_back(DistributionExample{std::move(name), {values, values + count}});
    values += count;
  }
  return examples;
}

}  // namespace detail

/// Each row has a window's loss and metrics, rates, gradient norm (with ClipGradNorm), loss scale (with
/// Autocast<fp16>), skipped steps, samples a second, waiting for data, metrics that policies published, and
/// numbers offered by `Run::offer`. A resumed run continues in the same files.
struct LogMetrics {
  std::filesystem::path folder;  ///< Created if it is missing.
  std::int64_t every = 1;        ///< Steps from one row to the next, at least 1.
  bool csv = true;
  bool tensorboard = true;
  double flush_seconds = 1.0;  ///< Seconds of rows that a killed process may lose.
  bool page = true;            ///< Write report.html.
  std::string title = {};      ///< Title of the page.
  bool histograms = false;     ///< Show each parameter's values as a distribution at an epoch's end.
  report::Facts facts = {};    ///< Names and values of settings, for the page and TensorBoard's HPARAMS.
  bool flops = true;           ///< Count FLOPs, for `flops_per_second` and `mfu`.
  std::optional<DevicePeak> peak = {};  ///< For `mfu` on a device that `peak_of_device` does not know.

  static constexpr bool leader_only = true;
  static constexpr bool ignores_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  static constexpr Phase phase = Phase::observe;
  using State = detail::MetricFeed;

  /// Throws UsageError for `every` below 1.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (every < 1) throw UsageError(message("LogMetrics needs an `every` of at least 1, got ", every));
    state.prepare(fit.run);
  }

  /// Opens the files once no policy can refuse the fit any more: a fit begun by mistake in the folder of a
  /// finished run leaves its files alone. Throws FileError for a folder that cannot be written.
  void on_fit_ready(FitContext& fit, State& state) const {
    const std::int64_t step = fit.run.progress().step;
    auto of_run = all_facts(fit.run);
    detail::RunFiles files =
        detail::open_run_files(state.take_closed(), {folder, step, {csv, tensorboard}, page, kPageSeconds},
                               {title, "under way", of_run});
    auto log = std::make_unique<report::MetricLog>(
        files.metrics, [shown = files.page](report::MetricFiles& written, bool last) {
          shown ? shown->update(written, last) : void();
        });
    if (step == 0)
      log->add([of_run](report::MetricFiles& written) {
        written.add_events(report::hyperparameter_events(report::unix_seconds(), of_run, {"loss"}));
      });
    state.begin(fit.run, {std::move(files), std::move(log), flush_seconds},
                {flops, peak ? peak : peak_of(fit.run.device())});
  }

  /// Restores the previous phase when destroyed.
  class PhaseScope {
   public:
    PhaseScope(State& state, RunPhase next) : state_(state), next_(next) {}
    ~PhaseScope() { state_.enter(next_); }
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

   private:
    State& state_;
    RunPhase next_;
  };

  PhaseScope phase_scope(const PhaseContext& next, State& state) const {
    return {state, state.enter(next.phase)};
  }
  void before_update(UpdateContext& update, State& state) const { state.add_rates(update); }
  void on_window_end(WindowContext& window, State& state) const {
    state.end_window(window.run.progress().step % every == 0);
  }
  void on_epoch_begin(EpochContext&, State& state) const {
    state.add_published();  // by policies listed after this one, at the last epoch's end
    state.restart_means();
  }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    state.add_published();
    if (histograms && state.is_open())
      state.record_examples("parameters", detail::parameter_distributions(epoch.run.model()));
  }
  void on_fit_end(FitContext& fit, State& state) const { state.end(fit.status); }

  /// Writes the rows up to a snapshot before it is complete, so that a resumed run lacks none.
  void state_dict(StateDict&, State& state) const {
    state.hand_over_all();
    if (state.is_open()) state.log()->flush();
  }
  void load_state_dict(const StateDict&, State&) const {}

 private:
  static constexpr double kPageSeconds = 10;

  [[nodiscard]] static std::optional<DevicePeak> peak_of(c10::Device device) {
    if (!device.is_cuda()) return std::nullopt;
    return peak_of_device(detail::CudaDriver::get().name(device.has_index() ? device.index() : 0));
  }

  [[nodiscard]] report::Facts all_facts(const Run& run) const {
    report::Facts all = facts;
    std::int64_t trained = 0;
    for (const UpdateView& view : run.updates())
      for (const at::Tensor& parameter : view.parameters) trained += parameter.numel();
    all.emplace_back("parameters of optimizers", std::to_string(trained));
    all.emplace_back("device", run.device().str());
    const report::Facts machine = report::machine_facts();
    all.insert(all.end(), machine.begin(), machine.end());
    return all;
  }
};

}  // namespace looptorch
