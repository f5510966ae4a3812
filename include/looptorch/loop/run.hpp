// SPDX-License-Identifier: MIT
// What policies see of a run, and what they ask of it: counters, losses, published metrics, what feeds it,
// evaluations, snapshots, and its end. Not a template, so that a policy is written once for every model.
#pragma once

#include <looptorch/base/type_name.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/feed.hpp>
#include <looptorch/loop/metric_board.hpp>
#include <looptorch/loop/running_mean.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace looptorch {
namespace detail {

struct RunAccess;

/// A type as a value, for evaluations.
struct TypeKey {
  const void* id;
  std::string_view name;
};
template <class T>
inline constexpr char kTypeKey = 0;
template <class T>
[[nodiscard]] TypeKey type_key() {
  return {&kTypeKey<T>, type_name<T>()};
}

/// What a Trainer does for policies while one of its calls is under way.
class RunHost {
 public:
  /// Evaluates by `what`, an Evaluates; the pointers are to its Batches and Measure. Returns nothing if no
  /// listed policy declares it.
  virtual std::optional<Evaluation> evaluate(TypeKey what, void* batches, void* measure) = 0;
  virtual void with_evaluated_weights(const std::function<void()>& body) = 0;
  virtual SnapshotContents snapshot() = 0;

 protected:
  ~RunHost() = default;
};

}  // namespace detail

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
  /// The range of batches of the fit under way; an empty one outside of fit and in a loop of `step`.
  [[nodiscard]] const Feed& feed() const { return feed_; }

  /// Evaluates as `Trainer::evaluate` does, on a range that can be gone through again. The policy declares
  /// the types by `using evaluates = Evaluates<Batches, Measure>`. Call it from on_fit_ready on, between
  /// windows. Throws UsageError for types that no listed policy declares, and in on_fit_begin.
  template <class Batches, class Measure>
  Evaluation evaluate(Batches& batches, Measure&& measure) {
    using Called = std::remove_cvref_t<Measure>;
    if constexpr (std::is_const_v<std::remove_reference_t<Measure>>) {
      Called copy = measure;
      return evaluate_by<Evaluates<Batches, Called>>(batches, &copy);
    } else {
      return evaluate_by<Evaluates<Batches, Called>>(batches, &measure);
    }
  }
  /// The same of the Trainer's own objective: `using evaluates = Evaluates<Batches>`.
  template <class Batches>
  Evaluation evaluate(Batches& batches) {
    return evaluate_by<Evaluates<Batches>>(batches, nullptr);
  }
  /// Calls `body` while the model has the weights that evaluations use: averages, where they are listed.
  /// Call it from on_fit_ready on. Throws UsageError in on_fit_begin.
  void with_evaluated_weights(const std::function<void()>& body) {
    host("with_evaluated_weights").with_evaluated_weights(body);
  }
  /// Returns everything that the run is, for write_snapshot. Tensors are handles that go on changing. The
  /// policy declares `static constexpr bool takes_snapshots = true`. Call it from on_fit_ready on, between
  /// windows. Throws UsageError elsewhere, and where no listed policy declares it.
  [[nodiscard]] SnapshotContents snapshot() { return host("snapshot").snapshot(); }

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
  friend detail::RunAccess;

  detail::RunHost& host(const char* call) const {
    if (host_) return *host_;
    throw UsageError(message("run.", call,
                             "() was called before all policies had begun, or after the call of the Trainer: "
                             "call it in on_fit_ready or later"));
  }

  template <class What, class Batches>
  Evaluation evaluate_by(Batches& batches, void* measure) {
    using Plain = std::remove_const_t<Batches>;
    auto result = host("evaluate").evaluate(detail::type_key<What>(), const_cast<Plain*>(&batches), measure);
    if (result) return *std::move(result);
    throw UsageError(
        message("run.evaluate() was called with types that no listed policy declares: give the policy "
                "`using evaluates = ",
                detail::type_name<What>(), "`"));
  }

  torch::nn::Module* model_;
  std::vector<UpdateView> updates_;
  Progress progress_;
  MetricBoard metrics_;
  at::Tensor lead_;  // the parameter whose device is the run's
  std::optional<std::string> stop_reason_;
  std::optional<std::string> interruption_;
  std::map<std::string, std::string> claims_;
  Feed feed_;
  detail::RunHost* host_ = nullptr;
};

namespace detail {

/// What the loop writes in a Run, and policies only read.
struct RunAccess {
  static Progress& progress(Run& run) { return run.progress_; }
  static at::Tensor& lead(Run& run) { return run.lead_; }
  static MetricBoard& metrics(Run& run) { return run.metrics_; }
  static void forget_claims(Run& run) { run.claims_.clear(); }
  static void feed(Run& run, Feed feed) { run.feed_ = std::move(feed); }
  /// Returns the host until then.
  static RunHost* host(Run& run, RunHost* host) { return std::exchange(run.host_, host); }
};

}  // namespace detail

}  // namespace looptorch
