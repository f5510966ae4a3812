// SPDX-License-Identifier: MIT
// Defines Run, through which policies access the run: they read counters, losses and metrics, publish
// metrics, evaluate, take snapshots and end the fit. Run is not a template, so a policy is written once for
// all models.
#pragma once

#include <looptorch/base/text/type_name.hpp>
#include <looptorch/data/loader/feed.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/metric_board.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/memory/held_memory.hpp>
#include <looptorch/objective/metric_sink.hpp>
#include <looptorch/objective/running_mean.hpp>
#include <looptorch/optim/parameter_groups.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
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

/// A type as a value, for evaluations. Not c10::util::type_index, a hash of the name: types in anonymous
/// namespaces of two files may share a name.
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

/// Serves policies that call their Trainer while one of its calls is under way.
class RunHost {
 public:
  /// Evaluates by `what`, an Evaluates, with its Batches and Measure. Returns nothing if no listed policy
  /// declares it.
  virtual std::optional<Evaluation> evaluate(TypeKey what, void* batches, void* measure) = 0;
  virtual void with_evaluated_weights(const std::function<void()>& body) = 0;
  virtual SnapshotContents snapshot(const std::filesystem::path& folder) = 0;
  virtual HeldMemory held_memory() = 0;
  virtual void in_phase(RunPhase phase, std::string_view name, const std::function<void()>& body) = 0;

 protected:
  ~RunHost() = default;
};

}  // namespace detail

/// How a fit ended.
enum class FitStatus {
  completed,     ///< all epochs, or a single-pass range, are through; or a loop of `step` has ended
  max_steps,     ///< `max_steps` is reached
  stopped,       ///< a policy ended it; the reason says why
  interrupted,   ///< the end came from outside, as by a signal; resume to continue
  nothing_left,  ///< the run had reached the options' epochs or steps: no window was trained
  failed,        ///< an exception propagates to the caller (seen by `on_fit_end` only)
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
    case FitStatus::nothing_left:
      return "nothing_left";
    case FitStatus::failed:
      return "failed";
  }
  return "unknown";
}

/// Counters over the whole run, earlier fits included. A step is one window, whatever its number of updates.
struct Progress {
  std::int64_t epoch = 0;  ///< epochs finished; so also the index of the one under way
  std::int64_t step = 0;   ///< windows finished
  /// Windows in which an update was vetoed or had no weight. A veto known only on the device is counted
  /// before the next update, or when the epoch ends or an evaluation begins.
  std::int64_t skipped = 0;
  std::int64_t batch = 0;        ///< micro-batches in finished windows of fit's current epoch
  std::int64_t samples = 0;      ///< samples seen, by the first dimension of each batch's first tensor
  std::int64_t epoch_begin = 0;  ///< `step` as fit's epoch under way began
  std::optional<std::int64_t> batches_per_epoch = {};  ///< micro-batches; known for sized ranges
  std::optional<std::int64_t> windows_per_epoch = {};  ///< windows in an epoch; known for sized ranges
  /// Steps of an epoch: as many as the last one, and before that its windows. A window without batches, since
  /// a loader skipped them, is no step.
  std::optional<std::int64_t> steps_per_epoch = {};
  /// Known from `max_steps`, or from `epochs` of a sized range. An epoch of fewer steps than planned corrects
  /// it before `on_epoch_end`.
  std::optional<std::int64_t> total_steps = {};
};

/// One update as policies see it.
struct UpdateView {
  std::string name;  ///< "update", or "update 1", "update 2", ...; `UpdateOptions::name` if given
  torch::optim::Optimizer* optimizer;  ///< never null
  std::vector<at::Tensor> parameters;  ///< the parameters that the optimizer trains, all groups in order
  RunningMean loss = {};               ///< the mean of the epoch under way, on the device until read
  RunningMeans metrics = {};           ///< means of the metrics in its losses
  /// By parameter group: the full rate, which schedules scale. It is the group's rate when the Trainer first
  /// saw it.
  std::vector<double> full_rates = {};
  /// By parameter group: the rate that the program gave it, which no policy changes.
  std::vector<double> given_rates = {};
  std::int64_t applied = 0;  ///< windows in which it moved the parameters
  std::int64_t skipped = 0;  ///< windows in which it was due, and was vetoed or had no weight
  /// Changes when a group or a parameter joins the optimizer, leaves it, or replaces another.
  std::int64_t groups_version = 0;
};

/// The state of a run that every context refers to.
class Run {
 public:
  template <class Module>
  Run(Module& model, std::vector<UpdateView> updates)
      : model_(&model),
        named_parameters_([&model] { return detail::named_parameters(std::as_const(model)); }),
        updates_(std::move(updates)) {}

  [[nodiscard]] const Progress& progress() const { return progress_; }
  [[nodiscard]] std::vector<UpdateView>& updates() { return updates_; }
  [[nodiscard]] const std::vector<UpdateView>& updates() const { return updates_; }
  [[nodiscard]] MetricBoard& metrics() { return metrics_; }
  [[nodiscard]] const MetricBoard& metrics() const { return metrics_; }
  /// Returns the model; include <torch/nn/module.h> to use it.
  [[nodiscard]] torch::nn::Module& model() const { return *model_; }
  /// Returns the model's parameters, frozen ones included, each once under all its names.
  [[nodiscard]] std::vector<NamedParameter> named_parameters() const { return named_parameters_(); }
  /// Returns the device of the model's first parameter, wherever it moves. For a model without parameters,
  /// returns that of the optimizers' first parameter.
  [[nodiscard]] at::Device device() const { return lead_.defined() ? lead_.device() : at::Device(at::kCPU); }
  /// Returns the range of batches of the fit under way; an empty one outside of fit and in a loop of `step`.
  [[nodiscard]] const Feed& feed() const { return feed_; }

  /// Evaluates as `Trainer::evaluate` does, on a multi-pass range. The policy declares the types by `using
  /// evaluates = Evaluates<Batches, Measure>`. Call it from on_fit_ready on, between windows. Throws
  /// UsageError for undeclared types, and in on_fit_begin.
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
  /// Evaluates the Trainer's own objective as the other overload does a measure. The policy declares `using
  /// evaluates = Evaluates<Batches>`.
  template <class Batches>
  Evaluation evaluate(Batches& batches) {
    return evaluate_by<Evaluates<Batches>>(batches, nullptr);
  }
  /// Calls `body` with the weights that evaluations use: averages, where listed. Call it from on_fit_ready
  /// on. Throws UsageError in on_fit_begin.
  void with_evaluated_weights(const std::function<void()>& body) {
    host("with_evaluated_weights").with_evaluated_weights(body);
  }
  /// Returns the whole run, for write_snapshot. Its tensors are not copies. The policy declares `static
  /// constexpr bool takes_snapshots = true`. Call it from on_fit_ready on, between windows. Throws UsageError
  /// elsewhere, and if no listed policy declares it. Under ShardOptimizer the other ranks write their shards
  /// of the optimizers into `folder`, the snapshot's; SnapshotError if one cannot.
  [[nodiscard]] SnapshotContents snapshot(const std::filesystem::path& folder = {}) {
    return host("snapshot").snapshot(folder);
  }

  /// Returns the limit of batches in an epoch, and in an evaluation, of a rehearsal
  /// (FitOptions::limit_batches); empty otherwise.
  [[nodiscard]] std::optional<std::int64_t> batch_limit() const { return batch_limit_; }

  /// Returns the bytes of weights, gradients, moments and averages, by a walk over them. The policy declares
  /// `static constexpr bool reads_memory = true`. Call it from on_fit_ready on. Throws UsageError elsewhere,
  /// and if no listed policy declares it.
  [[nodiscard]] HeldMemory held_memory() const { return host("held_memory").held_memory(); }

  /// Calls `body` and counts its time as `phase`; traces show it as `name`.
  void in_phase(RunPhase phase, std::string_view name, const std::function<void()>& body) const {
    host_ ? host_->in_phase(phase, name, body) : body();
  }

  /// Shows `text()` in ShowProgress's line, after `name`, until the fit ends.
  void show(const std::string& name, std::function<std::string()> text) { shown_[name] = std::move(text); }
  [[nodiscard]] const std::map<std::string, std::function<std::string()>>& shown() const { return shown_; }

  /// Logs a number of the window under way, if a policy logs metrics: a number, or a tensor of one element.
  /// Never waits; a tensor on a device is copied there.
  template <class Value>
  void offer(std::string_view name, const Value& value) {
    if (!sink_) return;
    const Quantity quantity(value);
    sink_->record(MetricSink::kWholeRun, name,
                  quantity.is_known() ? quantity : Quantity(quantity.tensor().clone()));
  }
  /// Logs texts, pictures, sound or distributions, if a policy logs metrics. They replace those offered by
  /// this name before.
  void offer_examples(std::string name, std::vector<Example> examples) {
    if (sink_) sink_->record_examples(std::move(name), std::move(examples));
  }
  [[nodiscard]] MetricSink* sink() const { return sink_; }

  /// Ends the fit after the window under way; `reason` goes into FitResult.
  void stop(std::string reason) {
    stop_reason_ = std::move(reason);
    if (signal_ == 0) interruption_.reset();
  }
  /// Ends the fit after the window under way for a cause outside of training, such as a time limit, or a
  /// `signal` of POSIX. The fit is `interrupted`: resuming continues it, while a stopped one has ended.
  /// Without a signal it does nothing if the fit is stopped, or makes its last step.
  void interrupt(std::string reason, int signal = 0) {
    if (stop_reason_ && signal == 0) return;
    interruption_ = std::move(reason);
    signal_ = signal;
  }
  [[nodiscard]] const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  /// Returns the reason given to `interrupt`, if there is one.
  [[nodiscard]] const std::optional<std::string>& interruption() const { return interruption_; }
  /// Returns the signal given to `interrupt`, or 0.
  [[nodiscard]] int signal() const { return signal_; }
  /// Claims the right of `owner` to set `what` in this fit. Throws UsageError, which ends with `remedy`, if
  /// another owner has claimed it.
  void claim(const std::string& what, const std::string& owner,
             const std::string& remedy = "keep one of them") {
    const auto [place, mine] = claims_.emplace(what, owner);
    if (!mine) throw UsageError(message(what, " is set by ", place->second, " and by ", owner, "; ", remedy));
  }
  /// True once `stop` or `interrupt` was called.
  [[nodiscard]] bool is_to_end() const { return stop_reason_ || interruption_; }

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
  std::function<std::vector<NamedParameter>()> named_parameters_;
  std::vector<UpdateView> updates_;
  Progress progress_;
  MetricBoard metrics_;
  at::Tensor lead_;  // the parameter whose device is the run's
  std::optional<std::string> stop_reason_;
  std::optional<std::string> interruption_;
  int signal_ = 0;  // that interrupted
  std::map<std::string, std::string> claims_;
  std::map<std::string, std::function<std::string()>> shown_;
  Feed feed_;
  MetricSink* sink_ = nullptr;
  detail::RunHost* host_ = nullptr;
  std::optional<std::int64_t> batch_limit_;
};

namespace detail {

/// Writes the parts of a Run that policies only read.
struct RunAccess {
  /// Sets where offers go; null: nowhere.
  static void collect_offers(Run& run, MetricSink* sink) { run.sink_ = sink; }
  /// Forgets earlier calls of `stop` and `interrupt`, as a new fit begins.
  static void forget_stop(Run& run) {
    run.stop_reason_.reset();
    run.interruption_.reset();
    run.signal_ = 0;
  }
  static Progress& progress(Run& run) { return run.progress_; }
  static at::Tensor& lead(Run& run) { return run.lead_; }
  static MetricBoard& metrics(Run& run) { return run.metrics_; }
  static void forget_claims(Run& run) {
    run.claims_.clear();
    run.shown_.clear();
    run.metrics_.forget_awaited();
  }
  static std::optional<std::int64_t>& batch_limit(Run& run) { return run.batch_limit_; }
  static void feed(Run& run, Feed feed) { run.feed_ = std::move(feed); }
  /// Sets the host and returns the previous one.
  static RunHost* host(Run& run, RunHost* host) { return std::exchange(run.host_, host); }
};

}  // namespace detail

}  // namespace looptorch
