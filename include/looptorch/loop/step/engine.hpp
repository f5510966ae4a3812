// SPDX-License-Identifier: MIT
// What a step is made of: micro-batches are differentiated, weighed and, at the window's end, turned into
// updates. With one update micro-batches stream; with several the window's batches are kept and each update
// sees them all.
#pragma once

#include <looptorch/loop/batches.hpp>
#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/resume/run_state.hpp>
#include <looptorch/loop/step/closure_step.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/open_window.hpp>
#include <looptorch/loop/step/optimizer_step.hpp>
#include <looptorch/loop/step/trained_parameters.hpp>
#include <looptorch/loop/step/verdict.hpp>
#include <looptorch/loop/step/window_losses.hpp>
#include <looptorch/loop/step/window_weight.hpp>
#include <looptorch/memory/recompute/bypass_watch.hpp>
#include <looptorch/policies/accumulate.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

template <class Model, class Updates, class Stack>
class Engine {
 public:
  static constexpr std::size_t kUpdates = std::tuple_size_v<Updates>;
  template <std::size_t I>
  static constexpr bool kByClosure = steps_by_closure<std::tuple_element_t<I, Updates>>;
  static constexpr bool kStreams = kUpdates == 1 && !any_by_closure<Updates>;
  /// The kept batches of a window: none where micro-batches stream.
  template <class Batch>
  using Kept = std::conditional_t<kStreams, NoState, std::vector<Batch>>;
  using Staged = StagedRun<std::array<WindowWeight, kUpdates>>;

  Engine(Model model, Updates updates, Stack stack)
      : model_(std::move(model)),
        updates_(std::move(updates)),
        stack_(std::move(stack)),
        run_(checked_module(), views()) {}

  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] Updates& updates() { return updates_; }
  [[nodiscard]] Stack& stack() { return stack_; }
  [[nodiscard]] Run& run() { return run_; }
  [[nodiscard]] const Run& run() const { return run_; }
  /// Micro-batches of the window under way; 0 between windows.
  [[nodiscard]] std::int64_t in_window() const { return in_window_; }
  /// Micro-batches of the window that ended last.
  [[nodiscard]] std::int64_t last_window() const { return last_window_; }

  /// N of the listed Accumulate; a constant unless it is `Accumulate<>{n}` or switched by When.
  [[nodiscard]] std::int64_t window_length() {
    std::int64_t length = 1;
    stack_.each([&](auto& slot) {
      if constexpr (std::is_same_v<family_t<typename std::remove_reference_t<decltype(slot)>::Policy>,
                                   AccumulateFamily>)
        if (slot.enabled()) length = slot.policy.micro_batches();
    });
    return length;
  }

  /// True from the first micro-batch of a window to its end, while that is being learnt too.
  [[nodiscard]] bool window_is_open() const { return window_.is_open(); }

  /// Looks again at what the optimizers train and where the model is, and forgets gradients that the program
  /// left there. Throws UsageError in the middle of another Trainer's window on the same parameters.
  void prepare() {
    run_.claims_.clear();
    watches_losses_ = !losses_may_overflow();
    bypass_watch_ = BypassWatch(*model_);
    if constexpr (any_by_closure<Updates>) require_no_gradient_changes(stack_);
    look_at_parameters();
    window_.require_alone();
    for (const UpdateView& view : run_.updates_) drop_gradients(view.parameters);
  }

  /// Looks again at where the model is, and at which policies are switched on; returns the model's
  /// parameters.
  std::vector<at::Tensor> look_again() {
    stack_.check_switched();
    std::vector<at::Tensor> all = model_->parameters();
    run_.lead_ = all.empty() ? at::Tensor() : all.front();
    for_each_index<kUpdates>([&](auto i) {
      for (const auto& group : std::get<i>(updates_).optimizer->param_groups())
        if (!run_.lead_.defined() && !group.params().empty()) run_.lead_ = group.params().front();
    });
    return all;
  }

  /// Looks again at what the updates train.
  void look_at_parameters() {
    parameters_.look_at(run_.updates_, look_again());
    window_.work_on(parameters_.trained(), parameters_.all());
  }

  [[nodiscard]] at::Device device() const { return run_.device(); }

  /// Writes what is known of the fit's length into the run's progress.
  template <class Plan>
  void announce(const Plan& plan) {
    plan.announce(run_.progress_);
  }

  /// Windows from now on belong to an epoch of fit, or to a caller's own loop, which leaves fit's place
  /// alone.
  void count_batches(bool in_epoch) { in_epoch_ = in_epoch; }

  /// How batches of the fit or the caller's loop are read from pinned memory.
  void read_pinned(PinnedSource pinned) { pinned_ = pinned; }

  /// The batch to come has this number in its epoch: those missing between it and the last are done with.
  void stand_at(std::int64_t number) { passed_over_ = number - run_.progress().batch - in_window_; }

  /// The losses of an epoch are its own.
  void begin_epoch() {
    for_each_index<kUpdates>([&](auto i) {
      run_.updates_[i].loss.reset();
      run_.updates_[i].metrics.clear();
    });
  }

  void count_epoch() {
    ++run_.progress_.epoch;
    run_.progress_.batch = 0;
  }

  /// Takes one micro-batch, made of these samples as far as somebody knows; ends the window and returns true
  /// if it is the window's last.
  template <class Batch, class Given, class Indices = std::span<const std::int64_t>>
  bool feed(Kept<Batch>& kept, Given&& batch, const Indices& indices = {}) {
    if (in_window_ == 0) begin_window();
    origin_.add(in_epoch_ ? run_.progress().batch + passed_over_ + in_window_ : WindowOrigin::kUnknown,
                indices);
    samples_ += batch_size(std::as_const(batch));
    if constexpr (!kStreams)
      keep(kept, std::forward<Given>(batch));
    else if (due_[0])
      with_batch_on(run_.device(), pinned_, batch, [&](const auto& there) {
        differentiate<0>(there, static_cast<std::size_t>(in_window_));
      });
    if (++in_window_ < window_length()) return false;
    end_window<Batch>(kept);
    return true;
  }

  /// Performs the updates on what the window holds and counts the step.
  template <class Batch>
  void end_window(Kept<Batch>& kept) {
    for_each_index<kUpdates>([&](auto i) {
      if (!due_[i]) return;
      if constexpr (kByClosure<i>) {
        differentiate_all<i>(kept);
        apply_by_closure<i>(kept);
      } else {
        if constexpr (!kStreams) differentiate_all<i>(kept);
        apply<i>([](auto& optimizer, UpdateContext& context, const GradientScale&) {
          return step_optimizer(optimizer, context);
        });
      }
    });
    if constexpr (!kStreams) kept.clear();
    count_step();
  }

  /// Throws what `after_update` hooks threw in the window that has ended.
  void rethrow() {
    if (!thrown_) return;
    drop_known_trouble();  // its window counts, as this one does: the next must not be blamed
    std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

  /// Waits for what the device has to say of updates made so far, and counts it. Throws NonFiniteLoss and
  /// NonFiniteGradient for windows before the one under way, and what hooks threw of updates in them.
  void settle() {
    std::exception_ptr first, thrown;
    for_each_index<kUpdates>([&](auto i) { settle_update<i>(thrown); });
    for_each_index<kUpdates>([&](auto i) {
      if (verdicts_[i].step() == run_.progress().step) return;  // its window is not counted yet
      keep_first(first, verdicts_[i].hear_trouble(run_.updates_[i].name,
                                                  [&] { return all_finite(parameters_.all()); }));
    });
    keep_first(first, thrown);
    if (first) std::rethrow_exception(first);
  }

  /// Throws what the host knows of the last window without waiting, so that no batch is computed in vain.
  void report_known() {
    bool trouble = false;
    for (const Verdict& verdict : verdicts_) trouble |= verdict.knows_trouble();
    if (trouble) settle();
  }

  /// Forgets the window under way: no gradient and no weight of it remains. Gradients of another Trainer's
  /// window are left alone.
  void abandon() {
    const bool alone = window_.is_alone();
    window_.close();
    drop_known_trouble();
    std::exception_ptr ignored;  // the exception on its way is the one to tell
    for_each_index<kUpdates>([&](auto i) {
      if (verdicts_[i].step() == run_.progress().step) {  // its window will not count
        ignoring_errors([&] { settle_update<i>(ignored); });
        verdicts_[i].drop_trouble();
      }
      run_.updates_[i].skipped -= std::exchange(skipped_here_[i], 0);
      if (alone) drop_gradients(run_.updates_[i].parameters);
      scratch_[i].clear();
      forget_micro_batches<i>();
    });
    thrown_ = nullptr;
    if (last_skipped_step_ == run_.progress().step) --run_.progress_.skipped, last_skipped_step_ = -1;
    in_window_ = samples_ = passed_over_ = 0;
  }

  /// Counters, losses, metrics and the policies' states, settled; some tensors are handles that go on
  /// changing.
  [[nodiscard]] StateDict state_dict() {
    settle();
    StateDict out = save_run(run_, weights_), policies;
    save_policies(stack_, policies);
    out.set("policies", policies);
    return out;
  }

  /// What `take` is to make of the run: nothing changes yet. Throws StateError for a state that lacks
  /// something.
  [[nodiscard]] Staged stage(const StateDict& in) const { return stage_run(in, run_, weights_); }
  void take(Staged staged) {
    run_.progress_ = std::move(staged.progress);
    run_.metrics_ = std::move(staged.metrics);
    run_.updates_ = std::move(staged.updates);
    weights_ = std::move(staged.weights);
    last_skipped_step_ = -1;
  }

  /// The inverse of `state_dict`. Throws StateError, before anything is touched, for a state of another
  /// number of updates or parameter groups or of other policies.
  void load_state_dict(const StateDict& in) {
    settle();
    look_again();
    require_same_updates(in, run_);
    Staged staged = stage(in);
    const StagedPolicies policies = stage_policies(stack_, in.under("policies"));
    require_all(policies);
    for (const Commit& commit : policies.commits) commit();
    take(std::move(staged));
  }

  /// The objective's result on a batch, inside the policies' forward scopes.
  template <class Objective, class Batch>
  auto forward(Objective& objective, const Batch& batch, bool training) {
    return stack_.template in_scopes<forward_scope_hook>(ForwardContext{run_, training},
                                                         [&] { return objective(model_, batch); });
  }

 private:
  auto& checked_module() {
    if (!model_) throw UsageError("the Trainer was given an empty model: a module holder made from nullptr");
    return *model_;
  }

  std::vector<UpdateView> views() {
    std::vector<UpdateView> views;
    for_each_index<kUpdates>([&](auto i) {
      auto& update = std::get<i>(updates_);
      if constexpr (!kByClosure<i>) require_no_hidden_closure(*update.optimizer);
      const std::string numbered = kUpdates == 1 ? "update" : "update " + std::to_string(i + 1);
      views.push_back({update.options.name.empty() ? numbered : update.options.name, update.optimizer.get(),
                       all_parameters(*update.optimizer)});
    });
    return views;
  }

  template <class Batch, class Given>
  void keep(std::vector<Batch>& kept, Given&& batch) {
    kept.push_back(std::forward<Given>(batch));
    if (!is_on(kept.back(), run_.device())) move_to(kept.back(), run_.device(), pinned_);
  }

  /// True where a policy that is on deals with non-finite losses by itself.
  bool losses_may_overflow() {
    bool may = false;
    stack_.each([&](auto& slot) {
      if constexpr (requires { requires std::remove_reference_t<decltype(slot)>::Policy::handles_overflow; })
        may |= slot.enabled();
    });
    return may;
  }

  void begin_window() {
    if (parameters_.changed(run_.updates_)) look_at_parameters();
    window_.open();
    decide_who_is_due();
    const Progress& progress = run_.progress();
    origin_.begin(progress.step, progress.epoch);
  }

  void decide_who_is_due() {
    for_each_index<kUpdates>([&](auto i) {
      const UpdateOptions& options = std::get<i>(updates_).options;
      due_[i] = run_.progress().step % options.every == 0 && (!options.when || options.when(run_));
    });
  }

  /// Forward and backward of update I on the window's micro-batch with this number. `again`, for a closure,
  /// adds nothing to the means.
  template <std::size_t I, class Batch>
  void differentiate(const Batch& batch, std::size_t number, bool again = false) {
    if (at_fault_[I]) return;  // the update is not made, whatever else the window holds
    FrozenScope frozen(parameters_.outside(I));
    const Loss loss = as_loss(forward(std::get<I>(updates_).objective, batch, /*training=*/true));
    const at::Tensor weighed = window_length() == 1 ? weights_[I].weigh_alone(loss) : weights_[I].weigh(loss);
    if (!weighed.defined()) return;
    if (const at::Tensor& value = loss_tensor(loss);
        watches_losses_ && value.is_cpu() && !std::isfinite(cpu_number(value))) {
      if (again) throw non_finite_again(I, origin_.narrowed(number));
      at_fault_[I] = number;
      return;
    }
    if (!again) losses_[I].add(loss);
    if (!weighed.requires_grad())
      throw UsageError(message(
          "the loss of ", run_.updates_[I].name,
          " does not depend on any parameter that its optimizer "
          "trains; is the optimizer made from this model's parameters, and are any of them unfrozen?"));
    const at::Tensor scaled = stack_.scaled(weighed);
    bypass_watch_.check(scaled);
    prepare_gradients<I>(weighed);
    scaled.backward();
  }

  /// The same on all of the window's batches, in turn.
  template <std::size_t I, class Batch>
  void differentiate_all(const std::vector<Batch>& kept, bool again = false) {
    for (std::size_t number = 0; number < kept.size(); ++number)
      differentiate<I>(kept[number], number, again);
  }

  /// Brings the gradients of the window's earlier micro-batches to the unit of the next one, and for a
  /// closure the sum of what was differentiated, to which `weighed` is added.
  template <std::size_t I>
  void prepare_gradients(const at::Tensor& weighed) {
    const double factor = weights_[I].take_correction();
    if (factor != 1) {
      GradientScale scale;
      scale.multiply(factor);
      collect_gradients(run_.updates_[I].parameters, scratch_[I]);
      scale.flush(scratch_[I]);
      scratch_[I].clear();
    }
    if constexpr (kByClosure<I>) {
      at::Tensor& sum = sums_[I];
      sum = sum.defined() ? sum * factor + weighed.detach() : weighed.detach();
    }
  }

  /// What makes the window's mean of a sum of what was differentiated, and its gradients of theirs.
  template <std::size_t I>
  [[nodiscard]] GradientScale window_scale() {
    return window_length() == 1 ? GradientScale{} : weights_[I].scale();
  }

  /// Lets update I, whose optimizer evaluates its loss again, move its parameters.
  template <std::size_t I, class Batch>
  void apply_by_closure(const std::vector<Batch>& kept) {
    apply<I>([&](auto& optimizer, UpdateContext& context, const GradientScale& given) {
      if (context.vetoed()) return std::optional(false);
      require_unscaled(context, given);
      const at::Tensor loss = given.apply(std::exchange(sums_[I], {}));
      return std::optional(
          step_by_closure(optimizer, context, loss, [&] { return evaluate_again<I>(kept); }));
    });
  }

  /// The window's gradients and mean loss at the parameters as they are now.
  template <std::size_t I, class Batch>
  at::Tensor evaluate_again(const std::vector<Batch>& kept) {
    const UpdateView& view = run_.updates_[I];
    drop_gradients(view.parameters);
    weights_[I].next_window();
    differentiate_all<I>(kept, /*again=*/true);
    const at::Tensor sum = std::exchange(sums_[I], {});
    if (!sum.defined())
      throw UsageError(
          message("the objective of ", view.name,
                  " gave a window weight at first, and none when its optimizer evaluated it again"));
    GradientScale scale = window_scale<I>();
    const at::Tensor loss = scale.apply(sum);
    if (watches_losses_ && !std::isfinite(loss.item<double>())) throw non_finite_again(I, origin_);
    std::vector<at::Tensor> gradients;
    collect_gradients(view.parameters, gradients);
    scale.flush(gradients);
    return loss;
  }

  [[nodiscard]] NonFiniteLoss non_finite_again(std::size_t update, const WindowOrigin& origin) const {
    return origin.error<NonFiniteLoss>(
        "evaluated again by its optimizer, the loss of " + run_.updates_[update].name + " is",
        "Lower the learning rate, or let the optimizer search along its direction (line_search_fn)");
  }

  /// Lets update I move its parameters by the window's gradients: by `step(optimizer, context, factor)`,
  /// which returns whether it did, or nothing where only the device knows.
  template <std::size_t I, class Step>
  void apply(Step&& step) {
    settle();
    if (weights_[I].is_empty() && !at_fault_[I])
      keep_first(thrown_, conclude<I>(/*made=*/false, Progress(run_.progress())));
    else
      update<I>(std::forward<Step>(step));
    forget_micro_batches<I>();
  }

  template <std::size_t I, class Step>
  void update(Step&& step) {
    const GradientScale given = window_scale<I>();
    UpdateContext context(run_, I, given, scratch_[I]);
    context.veto(at_fault_[I].has_value());
    if (const at::Tensor empty = weights_[I].unread_empty(); empty.defined()) context.veto(empty);
    const at::Tensor non_finite = unread_non_finite<I>();
    if (non_finite.defined()) context.veto(non_finite);
    stack_.template run<before_update_hook>(context);
    const std::optional<bool> made = step(*std::get<I>(updates_).optimizer, context, given);
    scratch_[I].clear();
    drop_gradients(run_.updates_[I].parameters);
    await<I>(context, made, non_finite);
    if (made.value_or(true)) losses_[I].add_to(run_.updates_[I], made ? at::Tensor() : context.found_inf());
    if (settles_at_once()) settle_update<I>(thrown_);
  }

  /// Asks for what is to be heard of an update later; `made` is empty where only the device knows.
  template <std::size_t I>
  void await(const UpdateContext& context, std::optional<bool> made, const at::Tensor& non_finite) {
    Verdict& verdict = verdicts_[I];
    made ? verdict.await_update(*made ? 0.0 : 1.0, run_.progress())
         : verdict.await_update(context.found_inf(), run_.progress());
    if (at_fault_[I])
      verdict.await_losses(1.0, origin_.narrowed(*at_fault_[I]));
    else if (non_finite.defined())
      verdict.await_losses(non_finite, origin_);
    if (context.unread_refused().defined())
      verdict.await_gradients(context.unread_refused(), origin_);
    else if (context.refused())
      verdict.await_gradients(1.0, origin_);
  }

  /// On a device the window's losses are judged by their sum: 0-dim, not zero where one is not a number.
  template <std::size_t I>
  at::Tensor unread_non_finite() {
    const at::Tensor& sum = losses_[I].device_sum();
    if (!watches_losses_ || !sum.defined() || sum.is_cpu() || sum.is_meta()) return {};
    return is_non_finite(sum);
  }

  /// True where a policy that is on must have `after_update` called before the next window begins.
  bool settles_at_once() {
    bool at_once = false;
    stack_.each([&](auto& slot) {
      using Policy = typename std::remove_reference_t<decltype(slot)>::Policy;
      if constexpr (after_update_hook::template valid<Policy>() && !kSettlesLate<Policy>)
        at_once |= slot.enabled();
    });
    return at_once;
  }

  /// Concludes update I if there is something to hear. What hooks throw of the window under way waits for its
  /// end; of an earlier one it goes to `earlier`.
  template <std::size_t I>
  void settle_update(std::exception_ptr& earlier) {
    verdicts_[I].hear_update([&](bool made, Progress then) {
      std::exception_ptr& thrown = then.step == run_.progress().step ? thrown_ : earlier;
      keep_first(thrown, conclude<I>(made, std::move(then)));
    });
  }

  /// Counts an update, and tells the policies if it was made: they see the progress as it was `then`. Returns
  /// what one of them threw: the update has been made, so that it must not keep the window from being
  /// counted.
  template <std::size_t I>
  [[nodiscard]] std::exception_ptr conclude(bool made, Progress then) {
    UpdateView& view = run_.updates_[I];
    WindowLosses::settle(view, made);
    if (made) {
      ++view.applied;
      const ProgressScope as_then(run_.progress_, std::move(then));
      auto context = UpdateContext::made(run_, I, scratch_[I]);
      return stack_.template run_all<after_update_hook>(context);
    }
    ++view.skipped;
    skipped_here_[I] += then.step == run_.progress().step;
    run_.progress_.skipped += std::exchange(last_skipped_step_, then.step) != then.step;
    return nullptr;
  }

  void drop_known_trouble() {
    for (Verdict& verdict : verdicts_)
      if (verdict.knows_trouble()) verdict.drop_trouble();
  }

  static void keep_first(std::exception_ptr& kept, std::exception_ptr thrown) {
    if (!kept) kept = std::move(thrown);
  }

  /// Shows another progress while it lives.
  class ProgressScope {
   public:
    ProgressScope(Progress& shown, Progress then)
        : shown_(shown), now_(std::exchange(shown, std::move(then))) {}
    ~ProgressScope() { shown_ = now_; }
    ProgressScope(const ProgressScope&) = delete;
    ProgressScope& operator=(const ProgressScope&) = delete;

   private:
    Progress& shown_;
    Progress now_;
  };

  template <std::size_t I>
  void forget_micro_batches() {
    losses_[I].clear();
    weights_[I].next_window();
    at_fault_[I].reset();
    if constexpr (kByClosure<I>) sums_[I] = at::Tensor();
  }

  void count_step() {
    Progress& progress = run_.progress_;
    ++progress.step;
    if (in_epoch_) progress.batch += in_window_ + std::exchange(passed_over_, 0);
    progress.samples += std::exchange(samples_, 0);
    last_window_ = std::exchange(in_window_, 0);
    skipped_here_ = {};
    window_.close();
  }

  Model model_;
  Updates updates_;
  Stack stack_;
  Run run_;
  std::array<WindowWeight, kUpdates> weights_{};
  TrainedParameters parameters_{kUpdates};
  std::array<std::vector<at::Tensor>, kUpdates> scratch_{};
  std::array<bool, kUpdates> due_{};
  std::array<Verdict, kUpdates> verdicts_{};
  std::array<at::Tensor, any_by_closure<Updates> ? kUpdates : 0> sums_{};  // of what closures differentiated
  std::array<WindowLosses, kUpdates> losses_{};                            // of the window under way, ...
  std::array<std::optional<std::size_t>, kUpdates> at_fault_{};  // ... its first loss that is no number, ...
  WindowOrigin origin_;                                          // ... and where it came from
  bool watches_losses_ = true;
  BypassWatch bypass_watch_;
  OpenWindow window_;
  std::array<std::int64_t, kUpdates> skipped_here_{};  // updates that the window under way has not made
  std::exception_ptr thrown_;                          // by after_update hooks of the window under way
  std::int64_t last_skipped_step_ = -1;
  bool in_epoch_ = true;
  PinnedSource pinned_ = PinnedSource::staged;
  std::int64_t in_window_ = 0;
  std::int64_t last_window_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t passed_over_ = 0;  // batches of the epoch before the one to come that the range left out
};

}  // namespace looptorch::detail
