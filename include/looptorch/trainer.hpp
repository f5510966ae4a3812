// SPDX-License-Identifier: MIT
// The training loop: fit > epoch > window > micro-batch. A run is a type, `Trainer<Model, Updates...,
// Policies...>`, composed, checked and stripped of what is absent by the compiler. This header is all that
// most users include.
#pragma once

#include <looptorch/loop/batches.hpp>
#include <looptorch/loop/call_in_progress.hpp>
#include <looptorch/loop/compose/checks.hpp>
#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/resume/resume.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/optim/fused_adam.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/optim/parameter_groups.hpp>
#include <looptorch/policies.hpp>

#include <ATen/core/grad_mode.h>

#include <any>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// Trains `Model` (a ModuleHolder or a shared pointer to a module) by one or several `Update`s under
/// policies.
///
///   Trainer trainer(net, optimizer, objective, Accumulate<16>{}, ClipGradNorm{1.0});
///   Trainer adversarial(gan, Update{optimizer_d, loss_d}, Update{optimizer_g, loss_g});
///
/// An objective is called as `objective(Model&, const Batch&)` and returns a `Loss` or a 0-dim tensor. With
/// several updates each window's batches are kept and each update in turn sees them all; while one runs,
/// parameters outside it receive no gradient. The order in which parts are listed matters among updates only.
template <class Model, class... Parts>
class Trainer {
  static_assert((sizeof(detail::CheckPolicy<detail::unwrapped_t<Parts>>) + ... +
                 (sizeof(detail::CheckConflicts<Parts...>) + sizeof(detail::CheckSnapshots<Parts...>) +
                  sizeof(detail::CheckClosures<Parts...>))) > 0);
  static_assert((detail::is_update<Parts> || ...),
                "looptorch: a Trainer needs an update: an optimizer with an objective. List "
                "Update{optimizer, objective}. See docs/errors.md#no-update");

 public:
  Trainer(std::type_identity_t<Model> model, Parts... parts)
      : engine_(std::move(model), std::tuple_cat(detail::as_update(std::move(parts))...),
                detail::make_stack<Stack>(std::tuple_cat(detail::as_policy(std::move(parts))...))) {}

  // clang-format off: version 14 lays out no requires-clauses
  template <class Optimizer, class Objective, class... Policies>
  requires std::same_as<Trainer, Trainer<Model, Update<Optimizer, Objective>, Policies...>> Trainer(
      std::type_identity_t<Model> model, Optimizer& optimizer, Objective objective, Policies... policies)
      : Trainer(std::move(model), Update<Optimizer, Objective>(optimizer, std::move(objective)),
                std::move(policies)...) {}

  template <class Optimizer, class Objective, class... Policies>
  requires std::same_as<Trainer, Trainer<Model, Update<Optimizer, Objective>, Policies...>> Trainer(
      std::type_identity_t<Model> model, std::shared_ptr<Optimizer> optimizer, Objective objective,
      Policies... policies)
      : Trainer(std::move(model), Update<Optimizer, Objective>(std::move(optimizer), std::move(objective)),
                std::move(policies)...) {}
  // clang-format on

  Trainer(Trainer&&) = default;
  Trainer(const Trainer&) = delete;  // two counts of one run

  /// Trains on a range of batches, or on a dataset if PinnedPrefetchLoader is listed. A second fit goes on
  /// where the first ended, in mid-epoch too. Modules keep the modes they have. When the objective, the data
  /// or a policy throws, gradients are dropped, flags restored, and the window under way is forgotten; of
  /// several updates those that it had already made stay made. An exception of an `after_update` hook waits
  /// until its window has ended: that update is made, and the window counts. Throws UsageError for options
  /// that cannot be, an empty range, a single-pass range with several epochs, within another call of this
  /// Trainer, and where another Trainer's window is under way on the same parameters.
  template <class Batches>
  FitResult fit(Batches&& batches, FitOptions options = {}) {
    if constexpr (!detail::is_range<Batches> && !std::is_void_v<LoaderPolicy> && detail::Loadable<Batches>) {
      return fit_dataset(std::forward<Batches>(batches), options);
    } else if constexpr (detail::CheckRange<Batches>::passed) {
      if constexpr (CheckBatch<detail::range_batch_t<Batches>>::passed) return fit_range(batches, options);
    }
    return {};
  }

  /// For people who keep their own loop: learns from one micro-batch, and performs the updates when it is the
  /// window's last. Policies see a fit of unknown length that begins with the first call and has neither
  /// epochs nor an end: what they do there does not happen. The place in the epoch that a later fit goes on
  /// from is left alone.
  template <class Batch>
  StepResult step(const Batch& batch) {
    if constexpr (CheckBatch<Batch>::passed) {
      const auto call = call_.begin("step()");
      if (!stepping_) begin_steps();
      return guarded([&] { return step_once(batch); });
    }
    return {};
  }

  /// Ends a window that `step` began and that is shorter than the others, as at the end of an epoch, if one
  /// is open, and counts what only the device knew of the last one.
  void finish_window() {
    const auto call = call_.begin("finish_window()");
    guarded([&] {
      if (engine_.in_window() > 0) finish_open_(*this);
      engine_.settle();
    });
  }

  /// Weighted means of the objective over all batches: no gradient, eval mode, the policies' forward scopes.
  template <class Batches>
  Evaluation evaluate(Batches&& batches) {
    static_assert(Engine::kUpdates == 1,
                  "looptorch: a Trainer with several updates has several objectives. Say what to measure: "
                  "evaluate(batches, callable). See docs/errors.md#evaluate");
    return evaluate(batches, std::get<0>(engine_.updates()).objective);
  }

  /// The same of a callable `(Model&, const Batch&)` that returns a Loss, a 0-dim tensor or a number; or, for
  /// what is no mean, of a measure whose `add(Model&, const Batch&)` is called for each batch and whose
  /// `result()`, a number or a `std::map<std::string, double>`, is asked for at the end. It goes on from what
  /// it holds: give a new one to each evaluation.
  template <class Batches, class Measure>
  Evaluation evaluate(Batches&& batches, Measure&& measure) {
    if constexpr (detail::CheckRange<Batches>::passed)
      if constexpr (detail::CheckMeasure<Measure, Model, detail::range_batch_t<Batches>>::passed)
        return evaluate_range(batches, measure);
    return {};
  }

  /// Calls `body` while the model has the weights that `evaluate` uses: averages, where they are listed. To
  /// save or copy these.
  template <class Body>
  void with_evaluated_weights(Body&& body) {
    const auto call = call_.evaluate("with_evaluated_weights()");
    engine_.settle();
    engine_.look_again();
    engine_.stack().template in_scopes<detail::evaluation_scope_hook>(EvaluationContext{run()},
                                                                      [&] { body(); });
  }

  /// Where the run stands: counters, losses, metrics and the states of policies, between windows. Model and
  /// optimizers are saved by themselves; `snapshot` has all.
  [[nodiscard]] StateDict state_dict() {
    require_between_windows("state_dict()");
    return detail::copied(engine_.state_dict());
  }
  /// Goes on from where `state_dict` was taken. Throws StateError for a state of other policies, or one that
  /// lacks something.
  void load_state_dict(const StateDict& state) {
    const auto call = call_.begin("load_state_dict()");
    require_finished_window("load_state_dict()");
    engine_.load_state_dict(state);
    stepping_ = false;  // policies begin anew with what they have now
  }

  /// Everything that the run is, between windows, for write_snapshot: what SnapshotEvery writes. Tensors are
  /// handles that go on changing.
  [[nodiscard]] SnapshotContents snapshot() {
    require_between_windows("snapshot()");
    return detail::snapshot_contents(engine_, loader_);
  }
  /// Goes on from what `snapshot` gave, random generators included, on other devices too. Throws
  /// SnapshotMismatch, before anything is touched, for a snapshot that is not of this run, unless it may be
  /// taken over in part.
  ResumeReport restore(const SnapshotContents& contents, bool strict = true) {
    const auto call = call_.begin("restore()");
    require_finished_window("restore()");
    stepping_ = false;
    const auto taken = detail::resume_from(engine_, contents, {}, strict, "the snapshot");
    return {.step = contents.step, .differences = taken.differences()};
  }

  [[nodiscard]] Model& model() { return engine_.model(); }
  /// Never waits: `skipped` may lack the last window until `updates`, `policy`, `finish_window` or the next
  /// update asks the device.
  [[nodiscard]] const Progress& progress() const { return engine_.run().progress(); }
  /// The updates in order, with their losses and counts. Waits for what the device has to say of the last
  /// window; throws NonFiniteLoss and NonFiniteGradient for it.
  [[nodiscard]] const std::vector<UpdateView>& updates() {
    engine_.settle();
    return engine_.run().updates();
  }
  [[nodiscard]] MetricBoard& metrics() { return engine_.run().metrics(); }
  [[nodiscard]] const MetricBoard& metrics() const { return engine_.run().metrics(); }

  /// The per-run state of the listed policy P: what it measured or decided, the last window included. Of
  /// several of one type the first that is switched on. Waits and throws as `updates`.
  template <class P>
  [[nodiscard]] const detail::state_t<P>& policy() {
    if constexpr (Stack::template lists<P>() && detail::HasState<P>) {
      engine_.settle();
      return *engine_.stack().template find<P>().state;
    } else {
      static_assert(Stack::template lists<P>() && detail::HasState<P>,
                    "looptorch: policy<P>() reads the state of a listed policy, and this one is not listed "
                    "or has none. See docs/errors.md#not-listed");
      static const detail::state_t<P> none{};
      return none;
    }
  }

 private:
  using Updates = detail::updates_t<Parts...>;
  using Stack = detail::stack_t<Parts...>;
  using Engine = detail::Engine<Model, Updates, Stack>;
  using LoaderPolicy = detail::loader_policy_t<Parts...>;
  static constexpr bool kTakesSnapshots = detail::CheckSnapshots<Parts...>::listed;
  using Resumed = std::conditional_t<kTakesSnapshots, detail::Resumed<Engine>, detail::NotResumed>;

  template <class Batch>
  using CheckBatch = detail::CheckBatch<Model, Batch, Updates>;

  Run& run() { return engine_.run(); }

  /// For calls that stand within no other one.
  void require_finished_window(const char* what) const {
    if (engine_.window_is_open())
      throw UsageError(
          message("a window that step() began is still open: call finish_window() before ", what));
  }
  /// For calls that may stand within fit, where a hook makes them.
  void require_between_windows(const char* what) const {
    call_.require_own_weights(what);
    if (call_.under_way() && engine_.window_is_open())
      throw UsageError(message(what,
                               " was called within a window, by an objective or by a hook of an "
                               "update: call it from on_window_end or later"));
    require_finished_window(what);
  }

  /// Runs `body`; if it throws, forgets the window under way before the exception goes on.
  template <class Body>
  decltype(auto) guarded(Body&& body) {
    at::AutoGradMode with_gradients(true);
    try {
      return body();
    } catch (...) {
      engine_.abandon();
      kept_.reset();
      throw;
    }
  }

  template <class Batches>
  FitResult fit_range(Batches& batches, const FitOptions& options) {
    const auto call = call_.begin("fit()");
    require_finished_window("fit()");
    engine_.settle();  // what a loop of `step` has left to hear, before policies begin anew
    const detail::FitClock clock;
    const auto resumed = resume(batches, options);
    const detail::FitPlan plan(options, progress(), detail::kRepeatable<Batches>, detail::known_size(batches),
                               engine_.window_length(), clock);
    stepping_ = false;
    from_start_ = resumed.has_value();
    engine_.count_batches(true);
    engine_.read_pinned(detail::kPinnedSource<Batches>);
    begin(plan);
    run().watch_loading(detail::stats_of(batches));
    try {
      guarded([&] {
        run_fit_begin();
        if (resumed) resumed->begin(run());
        tell_ready();
        if (plan.at_last_batch(progress())) run_epoch(batches, plan);  // only its end is missing
        train(batches, plan);
        engine_.settle();
      });
    } catch (...) {
      detail::ignoring_errors([&] { engine_.settle(); });
      detail::ignoring_errors([&] { end(FitStatus::failed); });
      throw;
    }
    end(plan.status(run()));
    auto result = detail::fit_result(run(), plan.status(run()), clock);
    if (resumed) result.resumed = resumed->report();
    if constexpr (requires { batches.skipped().first; }) result.skipped_samples = batches.skipped();
    return result;
  }

  /// Takes over the snapshot that the options name; nothing without one.
  template <class Batches>
  std::optional<Resumed> resume([[maybe_unused]] Batches& batches, const FitOptions& options) {
    if constexpr (kTakesSnapshots) {
      loader_ = detail::range_identity(batches);
      if (!options.resume.empty()) return Resumed(engine_, options, loader_);
    } else {
      detail::require_no_resume(options);
    }
    return std::nullopt;
  }

  template <class Data>
  FitResult fit_dataset(Data&& dataset, const FitOptions& options) {
    const auto found = engine_.stack().template find<LoaderPolicy>();
    if (!found.enabled)
      throw UsageError("fit was given a dataset, but the listed PinnedPrefetchLoader is switched off");
    return fit(found.policy->make(std::forward<Data>(dataset)), options);
  }

  void begin(const detail::FitPlan& plan) {
    engine_.prepare();
    engine_.announce(plan);
    run().watch_loading(nullptr);
    run().forget_stop();
  }

  void run_fit_begin() {
    FitContext context{run()};
    engine_.stack().tell_switched_off(context);
    engine_.stack().template run<detail::on_fit_begin_hook>(context);
  }

  void end(FitStatus status) {
    FitContext context{run(), status};
    std::exception_ptr first;  // a policy that throws must not keep the others from tidying up
    engine_.stack().each([&](auto& slot) {
      try {
        call<detail::on_fit_end_hook>(slot, context);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    });
    if (first) std::rethrow_exception(first);
  }

  template <class Batches>
  void train(Batches& batches, const detail::FitPlan& plan) {
    while (!plan.ended(run())) run_epoch(batches, plan);
  }

  template <class Batches>
  void run_epoch(Batches& batches, const detail::FitPlan& plan) {
    using Batch = detail::range_batch_t<Batches>;
    typename Engine::template Kept<Batch> kept;
    if (progress().batch == 0) begin_epoch();
    auto position =
        detail::begin_at(batches, progress().epoch, progress().batch, std::exchange(from_start_, false));
    const auto last = std::ranges::end(batches);
    for (; position != last; ++position) {
      if constexpr (detail::NumberedRange<Batches>) engine_.stand_at(position.number());
      if (!engine_.template feed<Batch>(kept, *position, detail::indices_at(position))) continue;
      plan.limit_time(run());
      end_window();
      if (plan.ended(run()) && !plan.at_last_batch(progress())) return;
    }
    if (engine_.in_window() > 0) {
      engine_.template end_window<Batch>(kept);
      plan.limit_time(run());
      end_window();
    }
    end_epoch();
  }

  void begin_epoch() {
    engine_.begin_epoch();
    EpochContext context{run()};
    engine_.stack().template run<detail::on_epoch_begin_hook>(context);
  }

  void end_epoch() {
    if (progress().batch == 0)
      throw UsageError("the range of batches is empty: there is nothing to train on");
    engine_.settle();
    engine_.count_epoch();
    EpochContext context{run()};
    engine_.stack().each([&](auto& slot) { call<detail::on_epoch_end_hook>(slot, context); });
  }

  void end_window() {
    WindowContext context{run(), engine_.last_window()};
    engine_.stack().each([&](auto& slot) { call<detail::on_window_end_hook>(slot, context); });
    engine_.rethrow();
    engine_.report_known();
  }

  /// Calls a policy's hook, and `with_trainer` of those library policies that need the Trainer's own type.
  template <class Hook, class Slot, class Context>
  void call(Slot& slot, Context& context) {
    if (!slot.enabled()) return;
    show_trainer(slot, context);
    if constexpr (Hook::template valid<typename Slot::Policy>()) Hook::call(slot.policy, slot.state, context);
  }

  template <class Slot, class Context>
  void show_trainer(Slot& slot, Context& context) {
    if constexpr (requires {
                    requires Slot::Policy::takes_trainer;
                    slot.policy.with_trainer(*this, context, slot.state);
                  })
      slot.policy.with_trainer(*this, context, slot.state);
  }

  void tell_ready() {
    ReadyContext context{run()};
    engine_.stack().each([&](auto& slot) {
      if (slot.enabled()) show_trainer(slot, context);
    });
  }

  void begin_steps() {
    begin(detail::FitPlan::of_unknown_length());
    engine_.count_batches(false);
    engine_.read_pinned(detail::PinnedSource::staged);
    guarded([&] {
      run_fit_begin();
      tell_ready();
    });
    stepping_ = true;
  }

  template <class Batch>
  StepResult step_once(const Batch& batch) {
    using Kept = typename Engine::template Kept<Batch>;
    if (engine_.in_window() == 0) {
      kept_.emplace<Kept>();
      finish_open_ = [](Trainer& self) { self.template finish_kept<Batch>(); };
    }
    const bool ended = engine_.template feed<Batch>(kept<Kept>(), batch);
    if (ended) end_window();
    return {ended, progress().step, run().is_to_end()};
  }

  template <class Batch>
  void finish_kept() {
    engine_.template end_window<Batch>(kept<typename Engine::template Kept<Batch>>());
    end_window();
  }

  template <class Kept>
  Kept& kept() {
    if (auto* kept = std::any_cast<Kept>(&kept_)) return *kept;
    throw UsageError("step() was given a batch of another type than the window under way began with");
  }

  template <class Batches, class Measure>
  Evaluation evaluate_range(Batches& batches, Measure& measure) {
    const auto call = call_.evaluate("evaluate()");
    engine_.settle();
    at::NoGradGuard no_gradients;
    detail::EvalScope eval(*model());
    detail::EvaluationSums sums;
    with_evaluated_weights([&] {
      for (auto&& batch : batches)
        detail::with_batch_on(engine_.device(), detail::kPinnedSource<Batches>, batch,
                              [&](const auto& there) { measure_batch(measure, there, sums); });
    });
    Evaluation result = sums.read();
    if constexpr (detail::GivesResult<Measure>) detail::take_result(measure, result);
    return result;
  }

  template <class Measure, class Batch>
  void measure_batch(Measure& measure, const Batch& batch, detail::EvaluationSums& sums) {
    if constexpr (detail::Accumulates<Measure, Model, Batch>) {
      const auto add = [&](Model& model, const Batch& of) { return measure.add(model, of), 0; };
      engine_.forward(add, batch, /*training=*/false);
      sums.add();
    } else {
      sums.add(detail::as_measure(engine_.forward(measure, batch, /*training=*/false)));
    }
  }

  Engine engine_;
  detail::CallInProgress call_;
  bool stepping_ = false;
  bool from_start_ = false;                    // a resumed fit's range stands before the epoch's first batch
  StateDict loader_;                           // what fit's range says of itself
  std::any kept_;                              // step()'s window, where several updates need its batches
  std::function<void(Trainer&)> finish_open_;  // ends that window, whose batch type only step() knew
};

/// What a Trainer is deduced to be from arguments that fit neither form: its one sentence says so.
template <class... Arguments>
class Trainer<detail::Misused, Arguments...> {
  static_assert(sizeof...(Arguments) < 0,
                "looptorch: these are not a Trainer's arguments. Write Trainer(model, optimizer, "
                "objective, policies...) or Trainer(model, Update{optimizer, objective}, ..., "
                "policies...), with an optimizer that has a name. See docs/errors.md#trainer-arguments");

 public:
  explicit Trainer(const Arguments&...) {}
};

// clang-format off
template <class Model, OptimizerLike Optimizer, class Objective, class... Policies>
  requires detail::ModelHandle<Model> && (!detail::is_update<Objective>)
Trainer(Model, Optimizer&, Objective, Policies...) -> Trainer<Model, Update<Optimizer, Objective>, Policies...>;
template <class Model, OptimizerLike Optimizer, class Objective, class... Policies>
  requires detail::ModelHandle<Model>
Trainer(Model, std::shared_ptr<Optimizer>, Objective, Policies...)
    -> Trainer<Model, Update<Optimizer, Objective>, Policies...>;
template <class Model, class First, class... Parts>
  requires detail::ModelHandle<Model> && detail::is_update<First>
Trainer(Model, First, Parts...) -> Trainer<Model, First, Parts...>;
template <class... Arguments>
Trainer(Arguments...) -> Trainer<detail::Misused, Arguments...>;
// clang-format on

}  // namespace looptorch
