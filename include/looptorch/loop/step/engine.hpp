// SPDX-License-Identifier: MIT
// Holds a Trainer's model, updates, policies and counters, and has the operations that a step is made of. For
// the step itself read fit_loop.hpp (fit > epoch), window.hpp (window > micro-batch), micro_batch.hpp and
// update_step.hpp.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/closure.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/loop/compose/policy_states.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/rank_calls.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/run_state.hpp>
#include <looptorch/loop/step/solo_ranks.hpp>
#include <looptorch/loop/step/trained_parameters.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/memory/recompute/layer_watch.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A Trainer's parts and the state of its window; each Trainer has one. Functions of this room and of the
/// rooms above it take it as their first argument. It runs no step by itself.
template <class Model, class Updates, class Stack>
class Engine {
 public:
  using PolicyStack = Stack;
  static constexpr std::size_t kUpdates = std::tuple_size_v<Updates>;
  template <std::size_t I>
  static constexpr bool kByClosure = steps_by_closure<std::tuple_element_t<I, Updates>>;
  /// True if a micro-batch is released once it is differentiated.
  static constexpr bool kStreams = kUpdates == 1 && !any_by_closure<Updates>;
  /// True if a listed policy may give ranks.
  static constexpr bool kHasRanks = Stack::template has<ranks_hook>() && is_included<SeveralRanks, Stack>;
  using Works = std::array<UpdateWork, kUpdates>;
  using Staged = StagedRun<Works>;

  Engine(Model model, Updates updates, Stack stack)
      : model_(std::move(model)),
        updates_(std::move(updates)),
        stack_(std::move(stack)),
        held_run_(std::make_unique<Run>(checked_module(), views())),
        run_(*held_run_) {
    std::vector<at::Tensor> trained;
    for (const UpdateView& view : run_.updates())
      trained.insert(trained.end(), view.parameters.begin(), view.parameters.end());
    window_.open.work_on(trained, {});
  }

  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] Updates& updates() { return updates_; }
  template <std::size_t I>
  [[nodiscard]] auto& update() {
    return std::get<I>(updates_);
  }
  template <std::size_t I>
  [[nodiscard]] const auto& update() const {
    return std::get<I>(updates_);
  }
  [[nodiscard]] Stack& stack() { return stack_; }
  [[nodiscard]] Run& run() { return run_; }
  [[nodiscard]] const Run& run() const { return run_; }
  [[nodiscard]] const Progress& progress() const { return run_.progress(); }
  [[nodiscard]] Works& works() { return works_; }
  [[nodiscard]] WindowState& window() { return window_; }
  [[nodiscard]] const WindowState& window() const { return window_; }
  [[nodiscard]] const TrainedParameters& parameters() const { return parameters_; }
  /// Returns the state kept so that windows can be rerun.
  [[nodiscard]] RedoState& redo() requires(kMayRedo<Stack>) { return redo_; }
  /// Returns the watch over layers that save memory; null if the model has none.
  [[nodiscard]] LayerWatch* layer_watch() const { return layer_watch_.get(); }
  /// Returns the ranks of the fit under way: none outside of it, without DataParallel, and on one process
  /// unless it is `reproducible`.
  [[nodiscard]] auto& ranks() { return ranks_; }
  [[nodiscard]] const auto& ranks() const { return ranks_; }

  /// Returns this rank's shard of update I's parameters; null if each rank's optimizer has all of them.
  template <std::size_t I>
  [[nodiscard]] OptimizerShards* shards() const {
    return ranks_.template shards<I>(*this);
  }

  /// Returns the loss scale of the policy that is on and has one; null if losses are not scaled. Throws
  /// PolicyConflict for the scales of two policies.
  [[nodiscard]] LossScale* loss_scale() {
    LossScale* scale = nullptr;
    if constexpr (Stack::template has<loss_scale_hook>())
      stack_.template each_with<loss_scale_hook>([&](auto& slot) {
        LossScale* const given = loss_scale_hook::call(slot.policy, slot.state, std::as_const(run_));
        if (given && std::exchange(scale, given))
          throw PolicyConflict(
              "two listed policies give a loss scale, and losses are multiplied by one: switch one of them "
              "off. See docs/errors.md#two-loss-scales");
      });
    return scale;
  }
  /// Calls `use(scale)` if losses are scaled.
  template <class Use>
  void with_loss_scale([[maybe_unused]] const Use& use) {
    if constexpr (Stack::template has<loss_scale_hook>())
      if (LossScale* const scale = loss_scale()) use(*scale);
  }
  /// Returns the graphs of the policy that is on and has some; null if micro-batches run eagerly.
  [[nodiscard]] MicroBatchGraphs* graphs() {
    MicroBatchGraphs* graphs = nullptr;
    if constexpr (Stack::template has<graphs_hook>())
      stack_.template each_with<graphs_hook>(
          [&](auto& slot) { graphs = graphs_hook::call(slot.policy, slot.state, std::as_const(run_)); });
    return graphs;
  }
  /// False if the loss scale handles a loss that is NaN or infinite, as an overflow.
  [[nodiscard]] bool watches_losses() { return !loss_scale(); }

  /// Returns true once per Trainer, for the message that a fit has nothing to do.
  [[nodiscard]] bool takes_warning_of_idle_fit() { return !std::exchange(warned_of_idle_fit_, true); }

  /// Returns true once per Trainer, if its model is in eval mode as training begins.
  [[nodiscard]] bool takes_warning_of_eval_mode() {
    return !model_->is_training() && !std::exchange(warned_of_eval_mode_, true);
  }

  /// Returns true once per Trainer, for the warning of parameters that no optimizer trains.
  [[nodiscard]] bool takes_warning_of_untrained() { return !std::exchange(warned_of_untrained_, true); }

  /// Returns N of the listed Accumulate; a constant unless it is `Accumulate<>{n}` or switched by When.
  [[nodiscard]] std::int64_t window_length() {
    if (tried_length_ > 0) return tried_length_;
    std::int64_t length = 1;
    stack_.template each_with<micro_batches_hook>(
        [&](auto& slot) { length = micro_batches_hook::call(slot.policy, slot.state); });
    return length;
  }

  /// Sets another window length while dry steps try it; 0 ends that.
  void try_window_length(std::int64_t length) { tried_length_ = length; }

  /// Prepares for windows: lists what the optimizers train and where the model is, and drops leftover
  /// gradients. Throws UsageError in the middle of another Trainer's window on the same parameters, and for a
  /// window length below 1.
  void prepare() {
    RunAccess::forget_claims(run_);
    layer_watch_ = watch_layers(*model_);
    if constexpr (any_by_closure<Updates>) require_no_gradient_changes(stack_);
    refresh_parameters();  // finds policies that must not both be on, before their lengths are compared
    require_all_listed_once();
    require_window_length();
    if constexpr (kMayRedo<Stack>) redo_.prepare(stack_);
    window_.open.require_alone();
    for (const UpdateView& view : run_.updates()) drop_gradients(view.parameters);
  }

  /// Lists what the updates train.
  void refresh_parameters() {
    parameters_.refresh(run_.updates(), refresh_model());
    window_.open.work_on(parameters_.trained(), parameters_.all());
    if (window_.open.is_alone())
      parameters_.drop_stale_gradients(
          [&](const at::Tensor& parameter) { return window_.open.another_trains(parameter); });
  }
  /// Calls `refresh_parameters` if a group or a parameter has joined an optimizer, left it, or been replaced.
  void refresh_changed_parameters() {
    if (!parameters_.changed(run_.updates())) return;
    refresh_parameters();
    require_all_listed_once();
  }

  /// Looks up the model's device and which policies are on; returns the model's parameters.
  std::vector<at::Tensor> refresh_model() {
    stack_.require_no_conflict();
    if constexpr (kMayRedo<Stack>) redo_.list_buffers_anew();
    std::vector<at::Tensor> all = model_->parameters();
    at::Tensor& lead = RunAccess::lead(run_);
    lead = all.empty() ? at::Tensor() : all.front();
    for (const UpdateView& view : run_.updates())
      for (const auto& group : view.optimizer->param_groups())
        if (!lead.defined() && !group.params().empty()) lead = group.params().front();
    return all;
  }

  /// Returns what `body` returns, inside the scopes of policies that measure phases.
  template <class Body>
  decltype(auto) in_phase(RunPhase phase, std::string_view name, Body&& body,
                          std::size_t update = PhaseContext::kNoUpdate) {
    return stack_.template in_scopes<phase_scope_hook>(PhaseContext{run_, phase, name, update}, body);
  }

  /// Returns the objective's result on a batch, inside the policies' forward scopes. Policies may cache in
  /// `*kept` what they derive from weights.
  template <class Objective, class Batch>
  auto forward(Objective& objective, const Batch& batch, bool training,
               std::shared_ptr<void>* kept = nullptr) {
    return stack_.template in_scopes<forward_scope_hook>(ForwardContext{run_, training, kept},
                                                         [&] { return objective(model_, batch); });
  }

  /// Returns the loss to differentiate.
  [[nodiscard]] at::Tensor scaled(at::Tensor loss) {
    with_loss_scale([&](auto& scale) { loss = scale.scaled(loss); });
    return loss;
  }
  /// Unscales the gradients. An overflow vetoes the update.
  void unscale(UpdateContext& context) {
    with_loss_scale([&](auto& scale) { scale.unscale(context); });
  }

  /// Runs the policies' before_update, on unscaled gradients.
  void ask_before_update(UpdateContext& context) {
    unscale(context);
    stack_.template run<before_update_hook>(context);
  }

  /// Returns counters, losses, metrics and the policies' states; some tensors are not copies. Call when the
  /// outcomes of all updates are known.
  [[nodiscard]] StateDict state_dict() {
    StateDict out = save_run(run_, works_), policies;
    save_policies(stack_, policies);
    out.set("policies", policies);
    return out;
  }

  /// Returns a checked state for `commit`; nothing changes yet. Throws StateError if something is missing.
  [[nodiscard]] Staged stage(const StateDict& in) const { return stage_run(in, run_, works_); }
  void commit(Staged staged) {
    RunAccess::progress(run_) = std::move(staged.progress);
    RunAccess::metrics(run_) = std::move(staged.metrics);
    run_.updates() = std::move(staged.updates);
    for (std::size_t i = 0; i < kUpdates; ++i) works_[i].weight = std::move(staged.weights[i]);
    window_.last_skipped = -1;
  }

  /// Loads the result of `state_dict`. Throws StateError, before anything changes, for a state with another
  /// number of updates, more parameter groups or other policies.
  void load_state_dict(const StateDict& in) {
    refresh_model();
    require_same_updates(in, run_);
    Staged staged = stage(in);
    const StagedPolicies policies = stage_policies(stack_, in.under("policies"));
    require_all(policies);
    for (const Commit& commit : policies.commits) commit();
    commit(std::move(staged));
  }

 private:
  using RanksHere = std::conditional_t<kHasRanks, SeveralRanks<Engine>, SoloRanks<Engine>>;
  static_assert(RankCalls<RanksHere, Engine>);

  void require_all_listed_once() {
    for (const UpdateView& view : run_.updates()) require_listed_once(view, *model_);
  }

  /// Throws UsageError for a length below 1, PolicyConflict if two policies set it.
  void require_window_length() {
    std::string setter;
    stack_.template each_with<micro_batches_hook>([&](auto& slot) {
      const auto policy = type_name<typename std::remove_reference_t<decltype(slot)>::Policy>();
      if (!setter.empty())
        throw PolicyConflict(message("the micro-batches of a window are counted by ", setter, " and by ",
                                     policy, "; keep one of them"));
      setter = policy;
    });
    if (const std::int64_t length = window_length(); length < 1)
      throw UsageError(message("micro_batches() of ", setter, " must be at least 1, got ", length));
  }

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
      const std::string& name = update.options.name.empty() ? numbered : update.options.name;
      for (const UpdateView& other : views)
        if (other.name == name)
          throw UsageError(message("two updates are named '", name, "': give each a name of its own"));
      views.push_back({name, update.optimizer.get(), all_parameters(*update.optimizer)});
    });
    return views;
  }

  Model model_;
  Updates updates_;
  Stack stack_;
  std::unique_ptr<Run> held_run_;  // policies refer to it, also when the Trainer moves
  Run& run_;
  Works works_{};
  WindowState window_;
  std::int64_t tried_length_ = 0;  // of a window, in dry steps
  [[no_unique_address]] std::conditional_t<kMayRedo<Stack>, RedoState, NoState> redo_;
  [[no_unique_address]] RanksHere ranks_;
  TrainedParameters parameters_{kUpdates};
  std::unique_ptr<LayerWatch> layer_watch_;
  bool warned_of_idle_fit_ = false;
  bool warned_of_eval_mode_ = false;
  bool warned_of_untrained_ = false;
};

}  // namespace looptorch::detail
