// SPDX-License-Identifier: MIT
// What a step is made of: micro-batches are differentiated, weighed and, at the window's end, turned into
// updates. With one update micro-batches stream; with several the window's batches are kept and each update
// sees them all.
#pragma once

#include <looptorch/loop/batches.hpp>
#include <looptorch/loop/closure_step.hpp>
#include <looptorch/loop/loss_history.hpp>
#include <looptorch/loop/non_finite.hpp>
#include <looptorch/loop/open_window.hpp>
#include <looptorch/loop/optimizer_step.hpp>
#include <looptorch/loop/parts.hpp>
#include <looptorch/loop/run_state.hpp>
#include <looptorch/loop/trained_parameters.hpp>
#include <looptorch/loop/verdict.hpp>
#include <looptorch/loop/window_weight.hpp>
#include <looptorch/memory/detail/bypass_watch.hpp>
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
      history_[i].restart(run_.updates_[i]);
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
        apply_by_closure<i>(kept, differentiate_all<i>(kept));
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
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

  /// Waits for what the device has to say of updates made so far, and counts it. Throws NonFiniteLoss, and
  /// what hooks threw of updates in earlier windows.
  void settle() {
    std::exception_ptr thrown;
    for_each_index<kUpdates>([&](auto i) {
      verdicts_[i].hear_update([&](bool made, std::int64_t step) {
        keep_first(step == run_.progress().step ? thrown_ : thrown, conclude<i>(made, step));
      });
    });
    std::optional<NonFiniteLoss> error;
    for_each_index<kUpdates>([&](auto i) {
      if (!verdicts_[i].hear_non_finite()) return;
      const bool committed = verdicts_[i].losses_step() < run_.progress().step;
      committed ? history_[i].forget_last(run_.updates_[i]) : history_[i].forget_window(run_.updates_[i]);
      if (!error) error = verdicts_[i].error(run_.updates_[i].name);
    });
    if (error) throw NonFiniteLoss(*error);
    if (thrown) std::rethrow_exception(thrown);
  }

  /// Forgets the window under way: no gradient and no weight of it remains. Gradients of another Trainer's
  /// window are left alone.
  void abandon() {
    const bool alone = window_.is_alone();
    window_.close();
    thrown_ = nullptr;
    for_each_index<kUpdates>([&](auto i) {
      if (alone) drop_gradients(run_.updates_[i].parameters);
      history_[i].forget_window(run_.updates_[i]);
      scratch_[i].clear();
      weights_[i].next_window();
    });
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
    for_each_index<kUpdates>([&](auto i) { history_[i].restart(run_.updates_[i]); });
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

  /// Forward and backward of update I on the window's micro-batch with this number. Returns what was
  /// differentiated, undefined if nothing was. `again`, for a closure, adds nothing to the means.
  template <std::size_t I, class Batch>
  at::Tensor differentiate(const Batch& batch, std::size_t number, bool again = false) {
    FrozenScope frozen(parameters_.outside(I));
    const Loss loss = as_loss(forward(std::get<I>(updates_).objective, batch, /*training=*/true));
    const at::Tensor weighed = window_length() == 1 ? weights_[I].weigh_alone(loss) : weights_[I].weigh(loss);
    if (!weighed.defined()) return weighed;
    if (const at::Tensor& value = loss_tensor(loss); watches_losses_ && value.is_cpu())
      if (!std::isfinite(cpu_number(value))) throw origin_.error(run_.updates_[I].name, number);
    if (!again) record(loss, run_.updates_[I].loss, run_.updates_[I].metrics);
    if (!weighed.requires_grad())
      throw UsageError(message(
          "the loss of ", run_.updates_[I].name,
          " does not depend on any parameter that its optimizer "
          "trains; is the optimizer made from this model's parameters, and are any of them unfrozen?"));
    const at::Tensor scaled = stack_.scaled(weighed);
    bypass_watch_.look(scaled);
    scaled.backward();
    return weighed;
  }

  /// The same on all of the window's batches, in turn; returns the sum, for a closure.
  template <std::size_t I, class Batch>
  at::Tensor differentiate_all(const std::vector<Batch>& kept, bool again = false) {
    at::Tensor sum;
    for (std::size_t number = 0; number < kept.size(); ++number) {
      const at::Tensor part = differentiate<I>(kept[number], number, again);
      if constexpr (kByClosure<I>)
        if (part.defined()) sum = sum.defined() ? sum + part.detach() : part.detach();
    }
    return sum;
  }

  /// What makes the window's mean of a sum of what was differentiated, and its gradients of theirs.
  template <std::size_t I>
  [[nodiscard]] GradientScale window_scale() {
    return window_length() == 1 ? GradientScale{} : weights_[I].scale();
  }

  /// Lets update I, whose optimizer evaluates its loss again, move its parameters; `sum` is that of the first
  /// evaluation.
  template <std::size_t I, class Batch>
  void apply_by_closure(const std::vector<Batch>& kept, const at::Tensor& sum) {
    apply<I>([&](auto& optimizer, UpdateContext& context, const GradientScale& given) {
      require_unscaled(context, given);
      return std::optional(
          step_by_closure(optimizer, context, given.apply(sum), [&] { return evaluate_again<I>(kept); }));
    });
  }

  /// The window's gradients and mean loss at the parameters as they are now.
  template <std::size_t I, class Batch>
  at::Tensor evaluate_again(const std::vector<Batch>& kept) {
    const UpdateView& view = run_.updates_[I];
    drop_gradients(view.parameters);
    weights_[I].next_window();
    const at::Tensor sum = differentiate_all<I>(kept, /*again=*/true);
    if (!sum.defined())
      throw UsageError(
          message("the objective of ", view.name,
                  " gave a window weight at first, and none when its optimizer evaluated it again"));
    GradientScale scale = window_scale<I>();
    const at::Tensor loss = scale.apply(sum);
    if (watches_losses_ && !std::isfinite(loss.item<double>())) throw origin_.error(view.name);
    std::vector<at::Tensor> gradients;
    collect_gradients(view.parameters, gradients);
    scale.flush(gradients);
    return loss;
  }

  /// Lets update I move its parameters by the window's gradients: by `step(optimizer, context, factor)`,
  /// which returns whether it did, or nothing where only the device knows.
  template <std::size_t I, class Step>
  void apply(Step&& step) {
    settle();
    UpdateView& view = run_.updates_[I];
    WindowWeight& weight = weights_[I];
    if (weight.is_empty()) {
      (void)conclude<I>(/*applied=*/false, run_.progress().step);
    } else {
      const GradientScale given = window_scale<I>();
      UpdateContext context(run_, I, given, scratch_[I]);
      if (const at::Tensor empty = weight.unread_empty(); empty.defined()) context.veto(empty);
      veto_non_finite<I>(context);
      stack_.template run<before_update_hook>(context);
      const std::optional<bool> made = step(*std::get<I>(updates_).optimizer, context, given);
      scratch_[I].clear();
      drop_gradients(view.parameters);
      if (!made)
        verdicts_[I].await_update(context.found_inf(), run_.progress().step);
      else if (context.settles_late())
        verdicts_[I].await_update(*made ? 0.0 : 1.0, run_.progress().step);
      else
        keep_first(thrown_, conclude<I>(*made, run_.progress().step));
    }
    weight.next_window();
  }

  /// On a device the window's losses are judged by their running total.
  template <std::size_t I>
  void veto_non_finite(UpdateContext& context) {
    const at::Tensor& total = context.view().loss.device_sum();
    if (!watches_losses_ || !total.defined() || total.is_cpu() || total.is_meta()) return;
    const at::Tensor non_finite = is_non_finite(total);
    context.veto(non_finite);
    verdicts_[I].await_losses(non_finite, origin_);
  }

  /// Counts an update of the window with index `step`, and tells the policies if it was made. Returns what
  /// one of them threw: the update has been made, so that it must not keep the window from being counted.
  template <std::size_t I>
  [[nodiscard]] std::exception_ptr conclude(bool applied, std::int64_t step) {
    UpdateView& view = run_.updates_[I];
    if (applied) {
      ++view.applied;
      UpdateContext context(run_, I, GradientScale{}, scratch_[I]);
      return stack_.template run_all<after_update_hook>(context);
    }
    ++view.skipped;
    run_.progress_.skipped += std::exchange(last_skipped_step_, step) != step;
    return nullptr;
  }

  static void keep_first(std::exception_ptr& kept, std::exception_ptr thrown) {
    if (!kept) kept = std::move(thrown);
  }

  void count_step() {
    for_each_index<kUpdates>([&](auto i) { history_[i].commit(run_.updates_[i]); });
    Progress& progress = run_.progress_;
    ++progress.step;
    if (in_epoch_) progress.batch += in_window_ + std::exchange(passed_over_, 0);
    progress.samples += std::exchange(samples_, 0);
    last_window_ = std::exchange(in_window_, 0);
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
  std::array<LossHistory, kUpdates> history_{};
  WindowOrigin origin_;  // of the window under way
  bool watches_losses_ = true;
  BypassWatch bypass_watch_;
  OpenWindow window_;
  std::exception_ptr thrown_;  // by after_update hooks of the window under way
  std::int64_t last_skipped_step_ = -1;
  bool in_epoch_ = true;
  PinnedSource pinned_ = PinnedSource::staged;
  std::int64_t in_window_ = 0;
  std::int64_t last_window_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t passed_over_ = 0;  // batches of the epoch before the one to come that the range left out
};

}  // namespace looptorch::detail
