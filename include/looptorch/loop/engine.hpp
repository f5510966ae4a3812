// SPDX-License-Identifier: MIT
// What a step is made of: micro-batches are differentiated, weighed and, at the window's end, turned into
// updates. With one update micro-batches stream; with several the window's batches are kept and each update
// sees them all.
#pragma once

#include <looptorch/loop/batches.hpp>
#include <looptorch/loop/loss_history.hpp>
#include <looptorch/loop/non_finite.hpp>
#include <looptorch/loop/optimizer_step.hpp>
#include <looptorch/loop/parts.hpp>
#include <looptorch/loop/run_state.hpp>
#include <looptorch/loop/verdict.hpp>
#include <looptorch/loop/window_weight.hpp>
#include <looptorch/memory/detail/bypass_watch.hpp>
#include <looptorch/policies/accumulate.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <cmath>
#include <cstdint>
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
  static constexpr bool kStreams = kUpdates == 1;
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

  /// Looks again at what the optimizers train and where the model is, and forgets gradients that somebody
  /// left there.
  void prepare() {
    run_.claims_.clear();
    watches_losses_ = !losses_may_overflow();
    bypass_watch_ = BypassWatch(*model_);
    look_at_parameters();
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

  /// What each update trains, and what it has to leave alone.
  void look_at_parameters() {
    std::vector<at::Tensor> all = look_again();
    for_each_index<kUpdates>([&](auto i) {
      auto& trained = run_.updates_[i].parameters = all_parameters(*std::get<i>(updates_).optimizer);
      listed_[i] = listed_parameters(*std::get<i>(updates_).optimizer);
      remember_rates(run_.updates_[i]);
      all.insert(all.end(), trained.begin(), trained.end());
    });
    for_each_index<kUpdates>([&](auto i) { outside_[i] = without(all, run_.updates_[i].parameters); });
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
      if constexpr (!kStreams)
        for (std::size_t number = 0; number < kept.size(); ++number) differentiate<i>(kept[number], number);
      apply<i>();
    });
    if constexpr (!kStreams) kept.clear();
    count_step();
  }

  /// Waits for what the device has to say of updates made so far, and counts it. Throws NonFiniteLoss.
  void settle() {
    for_each_index<kUpdates>([&](auto i) {
      verdicts_[i].hear_update([&](bool made, std::int64_t step) { conclude<i>(made, step); });
    });
    std::optional<NonFiniteLoss> error;
    for_each_index<kUpdates>([&](auto i) {
      if (!verdicts_[i].hear_non_finite()) return;
      const bool committed = verdicts_[i].losses_step() < run_.progress().step;
      committed ? history_[i].forget_last(run_.updates_[i]) : history_[i].forget_window(run_.updates_[i]);
      if (!error) error = verdicts_[i].error(run_.updates_[i].name);
    });
    if (error) throw NonFiniteLoss(*error);
  }

  /// Forgets the window under way: no gradient and no weight of it remains.
  void abandon() {
    for_each_index<kUpdates>([&](auto i) {
      drop_gradients(run_.updates_[i].parameters);
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
      const std::string numbered = kStreams ? "update" : "update " + std::to_string(i + 1);
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

  /// True when a group, or a parameter in one, has joined an optimizer.
  bool parameters_joined() {
    bool joined = false;
    for_each_index<kUpdates>(
        [&](auto i) { joined |= listed_[i] != listed_parameters(*std::get<i>(updates_).optimizer); });
    return joined;
  }

  void begin_window() {
    if (parameters_joined()) look_at_parameters();
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

  /// Forward and backward of update I on the window's micro-batch with this number.
  template <std::size_t I, class Batch>
  void differentiate(const Batch& batch, std::size_t number) {
    FrozenScope frozen(outside_[I]);
    const Loss loss = as_loss(forward(std::get<I>(updates_).objective, batch, /*training=*/true));
    const at::Tensor weighed = window_length() == 1 ? weights_[I].weigh_alone(loss) : weights_[I].weigh(loss);
    if (!weighed.defined()) return;
    if (const at::Tensor& value = loss_tensor(loss); watches_losses_ && value.is_cpu())
      if (!std::isfinite(cpu_number(value))) throw origin_.error(run_.updates_[I].name, number);
    record(loss, run_.updates_[I].loss, run_.updates_[I].metrics);
    if (!weighed.requires_grad())
      throw UsageError(message(
          "the loss of ", run_.updates_[I].name,
          " does not depend on any parameter that its optimizer "
          "trains; is the optimizer made from this model's parameters, and are any of them unfrozen?"));
    const at::Tensor scaled = stack_.scaled(weighed);
    bypass_watch_.look(scaled);
    scaled.backward();
  }

  /// Lets update I move its parameters by the window's gradients.
  template <std::size_t I>
  void apply() {
    settle();
    UpdateView& view = run_.updates_[I];
    WindowWeight& weight = weights_[I];
    if (weight.is_empty()) {
      conclude<I>(/*applied=*/false, run_.progress().step);
    } else {
      UpdateContext context(run_, I, window_length() == 1 ? GradientScale{} : weight.scale(), scratch_[I]);
      if (const at::Tensor empty = weight.unread_empty(); empty.defined()) context.veto(empty);
      veto_non_finite<I>(context);
      stack_.template run<before_update_hook>(context);
      const std::optional<bool> made = step_optimizer(*std::get<I>(updates_).optimizer, context);
      scratch_[I].clear();
      drop_gradients(view.parameters);
      if (!made)
        verdicts_[I].await_update(context.found_inf(), run_.progress().step);
      else if (context.settles_late())
        verdicts_[I].await_update(*made ? 0.0 : 1.0, run_.progress().step);
      else
        conclude<I>(*made, run_.progress().step);
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

  /// Counts an update of the window with index `step`, and tells the policies if it was made.
  template <std::size_t I>
  void conclude(bool applied, std::int64_t step) {
    UpdateView& view = run_.updates_[I];
    if (applied) {
      ++view.applied;
      UpdateContext context(run_, I, GradientScale{}, scratch_[I]);
      stack_.template run<after_update_hook>(context);
    } else {
      ++view.skipped;
      run_.progress_.skipped += std::exchange(last_skipped_step_, step) != step;
    }
  }

  void count_step() {
    for_each_index<kUpdates>([&](auto i) { history_[i].commit(run_.updates_[i]); });
    Progress& progress = run_.progress_;
    ++progress.step;
    if (in_epoch_) progress.batch += in_window_ + std::exchange(passed_over_, 0);
    progress.samples += std::exchange(samples_, 0);
    last_window_ = std::exchange(in_window_, 0);
  }

  Model model_;
  Updates updates_;
  Stack stack_;
  Run run_;
  std::array<WindowWeight, kUpdates> weights_{};
  std::array<std::vector<at::Tensor>, kUpdates> outside_{};
  std::array<std::vector<at::Tensor>, kUpdates> scratch_{};
  std::array<std::size_t, kUpdates> listed_{};
  std::array<bool, kUpdates> due_{};
  std::array<Verdict, kUpdates> verdicts_{};
  std::array<LossHistory, kUpdates> history_{};
  WindowOrigin origin_;  // of the window under way
  bool watches_losses_ = true;
  BypassWatch bypass_watch_;
  std::int64_t last_skipped_step_ = -1;
  bool in_epoch_ = true;
  PinnedSource pinned_ = PinnedSource::staged;
  std::int64_t in_window_ = 0;
  std::int64_t last_window_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t passed_over_ = 0;  // batches of the epoch before the one to come that the range left out
};

}  // namespace looptorch::detail
