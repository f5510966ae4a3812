// SPDX-License-Identifier: MIT
// What policies see of a run: counters, losses, published metrics and the way to end it. No templates, so
// that a policy is written once for every model.
#pragma once

#include <looptorch/data/loader/loader_stats.hpp>
#include <looptorch/loop/metric_board.hpp>
#include <looptorch/loop/running_mean.hpp>

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace looptorch {
namespace detail {
template <class Model, class Updates, class Stack>
class Engine;
}

/// How a fit ended.
enum class FitStatus {
  completed,    ///< all epochs, or the data of a single-pass range, are through
  max_steps,    ///< `max_steps` is reached
  stopped,      ///< a policy asked for the end; the reason says why
  interrupted,  ///< the end came from outside, as by a signal; a resumed fit goes on
  failed,       ///< an exception is on its way to the caller (seen by `on_fit_end` only)
};

[[nodiscard]] constexpr std::string_view to_string(FitStatus status) {
  switch (status) {
    case FitStatus::completed:
      return "completed";
    case FitStatus::max_steps:
      return "max_steps";
    case FitStatus::stopped:
      return "stopped";
    case FitStatus::interrupted:
      return "interrupted";
    case FitStatus::failed:
      return "failed";
  }
  return "unknown";
}

/// Counters over the whole run, earlier fits included. A step is one window, whatever its number of updates.
struct Progress {
  std::int64_t epoch = 0;  ///< epochs finished; so also the index of the one under way
  std::int64_t step = 0;   ///< windows finished
  /// Windows in which an update was vetoed or had no weight; a veto that only the device knows is counted
  /// before the next update, or when the epoch or an evaluation asks for it.
  std::int64_t skipped = 0;
  std::int64_t batch = 0;    ///< micro-batches of fit's epoch under way that belong to finished windows
  std::int64_t samples = 0;  ///< samples seen, by the first dimension of each batch's first tensor
  std::optional<std::int64_t> batches_per_epoch = {};  ///< micro-batches; known for sized ranges
  std::optional<std::int64_t> steps_per_epoch = {};    ///< the same in windows
  std::optional<std::int64_t> total_steps =
      {};  ///< known from `max_steps`, or from `epochs` of a sized range
};

/// One update as policies see it.
struct UpdateView {
  std::string name;  ///< "update", or "update 1", "update 2", ...; `UpdateOptions::name` if given
  torch::optim::Optimizer* optimizer;  ///< never null
  std::vector<at::Tensor> parameters;  ///< what the optimizer trains, all groups in order
  RunningMean loss = {};               ///< of the epoch under way, on the device until read
  RunningMeans metrics = {};           ///< the same for the metrics in its losses
  /// By parameter group: the rate that schedules take their share of, which is the one that the group had
  /// when the Trainer first saw it.
  std::vector<double> full_rates = {};
  /// By parameter group: the rate that the program gave it, which nobody changes.
  std::vector<double> given_rates = {};
  std::int64_t applied = 0;  ///< windows in which it moved the parameters
  std::int64_t skipped = 0;  ///< windows in which it was due, and was vetoed or had no weight
};

/// The state of a run that every context refers to.
class Run {
 public:
  Run(torch::nn::Module& model, std::vector<UpdateView> updates)
      : model_(&model), updates_(std::move(updates)) {}

  [[nodiscard]] const Progress& progress() const { return progress_; }
  [[nodiscard]] std::vector<UpdateView>& updates() { return updates_; }
  [[nodiscard]] const std::vector<UpdateView>& updates() const { return updates_; }
  [[nodiscard]] MetricBoard& metrics() { return metrics_; }
  [[nodiscard]] const MetricBoard& metrics() const { return metrics_; }
  /// The model; include <torch/nn/module.h> to use it.
  [[nodiscard]] torch::nn::Module& model() const { return *model_; }
  /// Where the model's first parameter is, wherever it moves; where the first parameter of the optimizers is
  /// for a model without any.
  [[nodiscard]] at::Device device() const { return lead_.defined() ? lead_.device() : at::Device(at::kCPU); }
  /// How long fit's loader is waited for; null where its range of batches is none.
  [[nodiscard]] const LoaderStats* loading() const { return loading_.get(); }
  void watch_loading(std::shared_ptr<const LoaderStats> stats) { loading_ = std::move(stats); }
  /// Ends the fit after the window under way; `reason` goes into FitResult.
  void stop(std::string reason) { stop_reason_ = std::move(reason); }
  /// The same for an end that has nothing to do with training, such as a time limit: the fit is
  /// `interrupted`, and one that is resumed goes on, where a stopped one has ended.
  void interrupt(std::string reason) { interruption_ = std::move(reason); }
  [[nodiscard]] const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  /// What `interrupt` said.
  [[nodiscard]] const std::optional<std::string>& interruption() const { return interruption_; }
  /// Says that `owner` sets `what` in this fit. Throws UsageError if somebody else does.
  void claim(const std::string& what, const std::string& owner) {
    const auto [place, mine] = claims_.emplace(what, owner);
    if (!mine)
      throw UsageError(message(what, " is set by ", place->second, " and by ", owner, "; keep one of them"));
  }
  /// True once either was called.
  [[nodiscard]] bool is_to_end() const { return stop_reason_ || interruption_; }
  /// Takes back what `stop` and `interrupt` said; a new fit begins with it.
  void forget_stop() {
    stop_reason_.reset();
    interruption_.reset();
  }

 private:
  template <class, class, class>
  friend class detail::Engine;

  torch::nn::Module* model_;
  std::vector<UpdateView> updates_;
  Progress progress_;
  MetricBoard metrics_;
  at::Tensor lead_;  // the parameter whose device is the run's
  std::optional<std::string> stop_reason_;
  std::optional<std::string> interruption_;
  std::map<std::string, std::string> claims_;
  std::shared_ptr<const LoaderStats> loading_;
};

}  // namespace looptorch
