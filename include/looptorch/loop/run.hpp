// SPDX-License-Identifier: MIT
// What policies see of a run: counters, losses, published metrics and the way to end it. No templates, so
// that a policy is written once for every model.
#pragma once

#include <looptorch/loop/running_mean.hpp>

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
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
  completed,  ///< all epochs, or the data of a single-pass range, are through
  max_steps,  ///< `max_steps` is reached
  stopped,    ///< a policy asked for the end; the reason says why
  failed,     ///< an exception is on its way to the caller (seen by `on_fit_end` only)
};

[[nodiscard]] constexpr std::string_view to_string(FitStatus status) {
  switch (status) {
    case FitStatus::completed:
      return "completed";
    case FitStatus::max_steps:
      return "max_steps";
    case FitStatus::stopped:
      return "stopped";
    case FitStatus::failed:
      return "failed";
  }
  return "unknown";
}

/// Counters over the whole run, earlier fits included. A step is one window, whatever its number of updates.
struct Progress {
  std::int64_t epoch = 0;    ///< epochs finished; so also the index of the one under way
  std::int64_t step = 0;     ///< windows finished
  std::int64_t skipped = 0;  ///< windows in which an update was vetoed or had no weight
  std::int64_t batch = 0;    ///< micro-batches of fit's epoch under way that belong to finished windows
  std::int64_t samples = 0;  ///< samples seen, by the first dimension of each batch's first tensor
  std::optional<std::int64_t> steps_per_epoch = {};  ///< known for sized ranges
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
  std::int64_t applied = 0;            ///< windows in which it moved the parameters
  std::int64_t skipped = 0;            ///< windows in which it was due, and was vetoed or had no weight
};

/// Named values, published by `Validate` and by anybody's policies, consumed by name.
class MetricBoard {
 public:
  void publish(const std::string& name, double value) { values_[name] = value; }
  [[nodiscard]] std::optional<double> find(const std::string& name) const {
    auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] const std::map<std::string, double>& values() const { return values_; }

 private:
  std::map<std::string, double> values_;
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
  /// Where the model's first parameter is.
  [[nodiscard]] at::Device device() const { return device_; }
  /// Ends the fit after the window under way; `reason` goes into FitResult.
  void stop(std::string reason) { stop_reason_ = std::move(reason); }
  [[nodiscard]] const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  /// Takes back what `stop` said; a new fit begins with it.
  void forget_stop() { stop_reason_.reset(); }

 private:
  template <class, class, class>
  friend class detail::Engine;

  torch::nn::Module* model_;
  std::vector<UpdateView> updates_;
  Progress progress_;
  MetricBoard metrics_;
  at::Device device_ = at::kCPU;
  std::optional<std::string> stop_reason_;
};

}  // namespace looptorch
