// SPDX-License-Identifier: MIT
// Declares the Trainer, looptorch's public class, with `fit`, `step` and `evaluate`. Its type,
// `Trainer<Model, Updates..., Policies...>`, lists the run's policies. The compiler checks the list, and
// generates no code for policies that are not on it. To read the training loop itself (fit > epoch > window >
// micro-batch > update), open loop/step/: fit_loop.hpp, window.hpp, micro_batch.hpp, update_step.hpp.
#pragma once

#include <looptorch/base/process/call_in_progress.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/bundle.hpp>
#include <looptorch/loop/compose/check_batch.hpp>
#include <looptorch/loop/compose/check_order.hpp>
#include <looptorch/loop/compose/check_split.hpp>
#include <looptorch/loop/compose/checks.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/deduction.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/step/count_held_memory.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/evaluate.hpp>
#include <looptorch/loop/step/fit_loop.hpp>
#include <looptorch/loop/step/host.hpp>
#include <looptorch/loop/step/own_loop.hpp>
#include <looptorch/loop/step/resolve_updates.hpp>
#include <looptorch/loop/step/trainer_access.hpp>
#include <looptorch/redo/closure_step.hpp>
#include <looptorch/redo/redone_window.hpp>

#include <concepts>
#include <memory>
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
/// several updates, each window's batches are kept, and each update in turn sees all of them. While one
/// update runs, parameters outside it receive no gradient. The order of the list matters among updates, and
/// among policies of one phase that declare no order. A bundle, `Policies{...}`, counts as its policies.
template <class Model, class... Parts>
class Trainer {
  // `sizeof` completes each check's type, whose own static_asserts then say what is wrong.
  static_assert((sizeof(detail::CheckPolicy<detail::unwrapped_t<Parts>>) + ... +
                 (sizeof(detail::CheckConflicts<Parts...>) + sizeof(detail::CheckSnapshots<Parts...>) +
                  sizeof(detail::CheckWindows<Parts...>) + sizeof(detail::CheckRanks<Parts...>) +
                  sizeof(detail::CheckClosures<Parts...>) + sizeof(detail::CheckInBackward<Parts...>) +
                  sizeof(detail::CheckOrder<detail::stack_t<Parts...>>))) > 0);
  static_assert(
      (sizeof(detail::check_evaluates_t<Model, detail::updates_t<Parts...>, detail::unwrapped_t<Parts>>) &&
       ...));
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

  /// Trains on a range of batches, or on a dataset if PinnedPrefetchLoader is listed. A second fit continues
  /// where the first ended, also in mid-epoch. Modules keep their modes. When the objective, the data or a
  /// policy throws, gradients are dropped, flags are restored, and the window under way is discarded; its
  /// updates already made stay made. An exception from an `after_update` hook waits until its window has
  /// ended: that update stays made, and the window counts. Throws UsageError for invalid options, an empty
  /// range, a single-pass range with several epochs, a call within another call of this Trainer, and while
  /// another Trainer's window is under way on the same parameters.
  template <class Batches>
  FitResult fit(Batches&& batches, FitOptions options = {}) {
    if constexpr (detail::LoadsFrom<LoaderPolicy, Batches>) {
      return fit(detail::load_by<LoaderPolicy>(engine_.stack(), std::forward<Batches>(batches)), options);
    } else if constexpr (detail::CheckRange<Batches>::passed) {
      if constexpr (CheckBatch<detail::range_batch_t<Batches>>::passed) {
        const auto call = call_.begin("fit()");
        detail::require_no_open_window(engine_, "fit()");
        own_loop_.restart(/*another=*/true);
        return detail::fit<Host>(*this, engine_, batches, options, feed_);
      }
    }
    return {};
  }

  /// Learns from one micro-batch, for callers with their own loop. Makes the updates when it is the window's
  /// last. Policies see a fit of unknown length that begins with the first call, has no epochs, and ends with
  /// `finish`. The position in the epoch from which a later fit continues does not change.
  template <class Batch>
  StepResult step(const Batch& batch) {
    if constexpr (CheckBatch<Batch>::passed) {
      const auto call = call_.begin("step()");
      return own_loop_.template step<Host>(*this, engine_, batch);
    }
    return {};
  }

  /// Ends a window that `step` began, if one is open; it may be shorter than the others, as at an epoch's
  /// end. Then waits for the device, and counts the last window's outcome.
  void finish_window() {
    const auto call = call_.begin("finish_window()");
    own_loop_.template finish_window<Host>(*this, engine_);
  }

  /// Ends a loop of `step` as a fit ends: finishes the window, lets policies end, which write the last
  /// snapshot and restore the best weights, and returns why it ended. The status is `completed` unless a
  /// policy asked for the end, and `nothing_left` after no step. The next step begins another loop. Throws
  /// what the last window throws, after policies have ended.
  FitResult finish() {
    const auto call = call_.begin("finish()");
    return own_loop_.template finish<Host>(*this, engine_);
  }

  /// Returns weighted means of the objective over all batches. Runs without gradients, in eval mode, inside
  /// the policies' forward scopes. A loader yields its epoch 0, then continues where it was.
  template <class Batches>
  Evaluation evaluate(Batches&& batches) {
    static_assert(Engine::kUpdates == 1,
                  "looptorch: a Trainer with several updates has several objectives. Say what to measure: "
                  "evaluate(batches, callable). See docs/errors.md#evaluate");
    return evaluate(batches, std::get<0>(engine_.updates()).objective);
  }

  /// Evaluates a callable `(Model&, const Batch&)` that returns a Loss, a 0-dim tensor or a number. For a
  /// result that is no mean, takes a measure: calls its `add(Model&, const Batch&)` for each batch, and at
  /// the end its `result()`, which returns a number or a `std::map<std::string, double>`. A measure keeps its
  /// contents: give a new one to each evaluation.
  template <class Batches, class Measure>
  Evaluation evaluate(Batches&& batches, Measure&& measure) {
    if constexpr (detail::CheckRange<Batches>::passed) {
      if constexpr (detail::CheckMeasure<Measure, Model, detail::range_batch_t<Batches>>::passed) {
        const auto call = call_.evaluate("evaluate()");
        detail::resolve_updates(engine_);
        return detail::evaluate_range(engine_, batches, measure);
      }
    }
    return {};
  }

  /// Calls `body` with the weights that `evaluate` uses: averages, if listed. Use it to save or copy those
  /// weights.
  template <class Body>
  void with_evaluated_weights(Body&& body) {
    const auto call = call_.evaluate("with_evaluated_weights()");
    detail::resolve_updates(engine_);
    engine_.in_phase(RunPhase::evaluation, "evaluated weights",
                     [&] { detail::in_evaluation_scopes(engine_, body); });
  }

  /// Returns the run's state between windows: counters, losses, metrics and the states of policies. Model and
  /// optimizers are not included; `snapshot` includes them.
  [[nodiscard]] StateDict state_dict() {
    detail::require_between_windows(engine_, call_, "state_dict()");
    detail::resolve_updates(engine_);
    return detail::copied(engine_.state_dict());
  }
  /// Continues from a `state_dict`. Throws StateError for a state of other policies, or an incomplete one.
  void load_state_dict(const StateDict& state) {
    const auto call = call_.begin("load_state_dict()");
    detail::require_no_open_window(engine_, "load_state_dict()");
    detail::resolve_updates(engine_);
    engine_.load_state_dict(state);
    own_loop_.restart(/*another=*/false);  // policies begin anew with what they have now
  }

  /// Returns the whole run, between windows, for write_snapshot: what SnapshotEvery writes. Its tensors are
  /// not copies and keep changing. `folder` is the snapshot's folder, for ranks with sharded optimizers.
  [[nodiscard]] SnapshotContents snapshot(const std::filesystem::path& folder = {}) {
    static_assert(detail::is_included<detail::SnapshotCode, Engine>,
                  "looptorch: snapshot() needs the code of snapshots. Include "
                  "<looptorch/policies/snapshot_every.hpp>. See docs/errors.md#snapshot-code");
    if constexpr (detail::is_included<detail::SnapshotCode, Engine>) {
      detail::require_between_windows(engine_, call_, "snapshot()");
      detail::resolve_updates(engine_);
      if constexpr (Host::takes_snapshots)
        return detail::SnapshotCode<Engine>::take(engine_, folder, feed_);
      else
        return detail::SnapshotCode<Engine>::take(engine_, folder);
    } else {
      return {};
    }
  }
  /// Restores what `snapshot` returned, random generators included, also on other devices. Throws
  /// SnapshotMismatch, before anything is changed, for a snapshot of another run, and for other settings
  /// unless `resume_changed`. If `strict` is false, loads the parts that fit instead.
  ResumeReport restore(const SnapshotContents& contents, bool strict = true, bool resume_changed = false) {
    static_assert(detail::is_included<detail::SnapshotCode, Engine>,
                  "looptorch: restore() needs the code of snapshots. Include "
                  "<looptorch/policies/snapshot_every.hpp>. See docs/errors.md#snapshot-code");
    if constexpr (detail::is_included<detail::SnapshotCode, Engine>) {
      const auto call = call_.begin("restore()");
      detail::require_no_open_window(engine_, "restore()");
      detail::resolve_updates(engine_);
      own_loop_.restart(/*another=*/false);
      return detail::SnapshotCode<Engine>::restore(engine_, contents, strict, resume_changed);
    } else {
      return {};
    }
  }

  /// Returns the bytes of weights, gradients, moments and averages, by a walk over them. Moments of an
  /// optimizer unknown to snapshots do not count.
  [[nodiscard]] HeldMemory held_memory() { return detail::held_memory(engine_); }
  /// Returns the bytes that the run will hold after its first updates: with moments and averages that do not
  /// exist yet, and those of layers that UnfreezeAt unfreezes later. Excludes step counts, a few bytes each.
  [[nodiscard]] HeldMemory expected_memory() { return detail::expected_memory(engine_); }

  [[nodiscard]] Model& model() { return engine_.model(); }
  /// Returns the counters without waiting. `skipped` may lack the last window until `updates`, `policy`,
  /// `finish_window` or the next update asks the device.
  [[nodiscard]] const Progress& progress() const { return engine_.progress(); }
  /// Returns the updates in order, with their losses and counts. Waits for the device's results of the last
  /// window; throws NonFiniteLoss and NonFiniteGradient for it.
  [[nodiscard]] const std::vector<UpdateView>& updates() {
    detail::resolve_updates(engine_);
    return engine_.run().updates();
  }
  [[nodiscard]] MetricBoard& metrics() { return engine_.run().metrics(); }
  [[nodiscard]] const MetricBoard& metrics() const { return engine_.run().metrics(); }

  /// True if a policy of type P is listed.
  template <class P>
  [[nodiscard]] static constexpr bool lists() {
    return Stack::template lists<P>();
  }
  /// Returns the per-run state of the listed policy P: its measurements or decisions, the last window
  /// included. If several of one type are listed, returns that of the first that is on. Waits and throws as
  /// `updates`.
  template <class P>
  [[nodiscard]] const detail::state_t<P>& policy() {
    if constexpr (Stack::template lists<P>() && detail::HasState<P>) {
      detail::resolve_updates(engine_);
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
  friend detail::TrainerAccess;

  using Updates = detail::updates_t<Parts...>;
  using Stack = detail::stack_t<Parts...>;
  using Engine = detail::Engine<Model, Updates, Stack>;
  using LoaderPolicy = detail::loader_policy_t<Parts...>;
  using Host =
      detail::TrainerHost<Trainer, detail::evaluations_t<Parts...>, detail::CheckSnapshots<Parts...>::listed,
                          (detail::reads_memory<detail::unwrapped_t<Parts>>() || ...)>;

  template <class Batch>
  using CheckBatch = detail::check_batch_t<Engine, Model, Batch, Updates>;

  Engine engine_;
  detail::CallInProgress call_;
  detail::OwnLoop<Engine> own_loop_;  // of step()
  [[no_unique_address]] detail::LastFeed<detail::CheckSnapshots<Parts...>::listed, Engine> feed_;
};

}  // namespace looptorch
