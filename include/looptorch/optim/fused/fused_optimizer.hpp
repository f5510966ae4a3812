// SPDX-License-Identifier: MIT
// The class template behind all fused optimizers. It keeps parameter groups, moments and rates, and updates
// with one kernel call for each group, device and dtype (fused_update.hpp). Its template argument `Rule` adds
// the options, the moments and the kernel. optimizer_rule.hpp has the requirements on a rule; adam_rule.hpp
// is an example.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/fused/fused_update.hpp>
#include <looptorch/optim/fused/kept_rates.hpp>
#include <looptorch/optim/fused/optimizer_rule.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>
#include <looptorch/optim/state/listed_parameters.hpp>
#include <looptorch/optim/state/moment_fields.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// An optimizer whose numbers are those of `Rule`.
template <class Rule>
class FusedOptimizer : public AnyOptimizer {
  static_assert(
      OptimizerRule<Rule>,
      "looptorch: this is no rule of an optimizer. Give it Options with `lr`, Moments, kName, kOptions, "
      "kFields, and static functions check and apply; optim/fused/optimizer_rule.hpp has their arguments. See "
      "docs/errors.md#optimizer-rule");

 public:
  using Options = typename Rule::Options;
  using Moments = typename Rule::Moments;
  using AnyOptimizer::Group;
  using Field = MomentField<Moments, Options>;
  using Position = ListedParameters::Position;
  /// True if elements are updated apart from each other, so that ranks may split a parameter.
  static constexpr bool updates_by_element = requires { Rule::by_element; };

  /// Makes one group of the parameters. A parameter that is listed twice, as a tied weight is, is taken once.
  /// Throws UsageError for options out of range.
  explicit FusedOptimizer(const std::vector<at::Tensor>& parameters, Options options = {})
      : FusedOptimizer(std::vector<Group>{Group(parameters)}, options) {}

  /// Takes groups with options of their own, each made by `group`. Throws UsageError for a parameter that is
  /// in two of them, or that the kernels cannot update: complex, or with gaps in memory.
  explicit FusedOptimizer(const std::vector<Group>& groups, Options defaults = {})
      : AnyOptimizer(std::vector<Group>{}, make_options(defaults)) {
    for (const Group& listed : groups) add_param_group(listed);
    adopt_groups();
    FusedOptimizer::prepare();
  }

  /// Adds a group, which keeps its options; without any it takes the defaults. Throws UsageError, and adds
  /// nothing, for the options of another optimizer. Parameters are checked by the next step. A call through
  /// `torch::optim::Optimizer` reaches LibTorch's function, which since 2.15 gives every group the defaults.
  void add_param_group(const Group& added) {
    if (added.has_options()) (void)options_of(added);
    Optimizer::add_param_group(added);
    if (added.has_options()) param_groups().back().set_options(added.options().clone());
  }

  /// Returns a parameter group with options of its own.
  [[nodiscard]] static Group group(std::vector<at::Tensor> parameters, Options options) {
    return {std::move(parameters), make_options(options)};
  }

  /// Updates each parameter that has a gradient; others keep their values and moments. Moments follow a
  /// parameter that moved within the groups. A new parameter in the position of another starts without
  /// moments. Throws UsageError, before anything changes, for a gradient that is not dense or of another
  /// shape, and for a parameter that changed its shape.
  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    step(GradientScale{}, at::Tensor());
    return loss;
  }

  /// Updates with gradients that `scale` still has to multiply. If `found_inf` (0-dim; undefined means no) is
  /// not zero, nothing changes, step counts included. Never waits for the device, unless the optimizer's own
  /// description says so.
  void step(const GradientScale& scale, const at::Tensor& found_inf) override { step_due(scale, found_inf); }

  void update(const at::Tensor& parameter, const at::Tensor& found_inf) override {
    step_due(GradientScale{}, found_inf, &parameter);
  }

  /// The halves of `step`, for graphs: see AnyOptimizer.
  [[nodiscard]] std::shared_ptr<BegunStep> begin_step(const GradientScale& scale,
                                                      const at::Tensor& found_inf) override {
    at::NoGradGuard no_gradients;
    Update update = due_update();
    auto begun = std::make_shared<BegunStep>(BegunStep{{scale, found_inf}, update.due_counts().value()});
    update.step_groups(begun->factors, Update::Stage::counts);
    return begun;
  }
  void finish_step(const BegunStep& begun) override {
    at::NoGradGuard no_gradients;
    FusedFactors factors = begun.factors;
    due_update().step_groups(factors, Update::Stage::kernels);
  }
  [[nodiscard]] bool can_begin(const BegunStep* other) override {
    const auto counts = due_update().due_counts();
    const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
    return counts && (!other || std::ranges::equal(*counts, other->counts, same));
  }

  /// Lets steps read each group's rate from memory on its parameters' devices from now on, so that a step
  /// which a graph has captured follows a schedule. Make a step before the capture, for the moments, and call
  /// `send_rates` before each replay. Rates have fp64's precision there, and fp32's where LibTorch's kernels
  /// read them (FusedAdam, FusedAdamW, FusedSGD).
  void keep_rates_on_devices() {
    if (!rates_) rates_.emplace();
    send_rates();
  }

  /// Writes the rates that have changed to the parameters' devices, by a launch each. Does nothing unless
  /// they are kept there; a step that is not replayed does it by itself.
  void send_rates() {
    if (!rates_) return;
    at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < param_groups_.size(); ++i)
      for (const at::Tensor& parameter : param_groups_[i].params())
        (void)rates_->on(parameter.device(), i, options_of(param_groups_[i]).lr);
  }

  void prepare() override {
    if constexpr (requires { Rule::kKernels; })
      for (const Group& group : param_groups_)
        for (const at::Tensor& parameter : group.params()) (void)kernels_for(Rule::kKernels, parameter);
  }

  /// True if folding `scale` into the kernel, which divides by an fp32 number, loses no precision.
  [[nodiscard]] bool can_fold(const GradientScale& scale) const override {
    if (scale.is_one()) return true;
    for (const Group& group : param_groups_)
      for (const at::Tensor& parameter : group.params())
        if (parameter.scalar_type() == at::kDouble) return false;
    return true;
  }

  /// Returns the moments of each group, in the order of its parameters.
  [[nodiscard]] const std::vector<Moments>& moments() const { return moments_; }

  /// Returns the moments of one parameter by PyTorch's names ("exp_avg", "step", ...); empty before its first
  /// gradient. The tensors are handles: clone what must not change, and write to none, since counts are
  /// shared. Throws UsageError for a parameter that is not this optimizer's.
  [[nodiscard]] StateDict state_of(const at::Tensor& parameter) const override {
    (void)position_of(parameter);
    const auto known = listed_.find(parameter);
    return known ? fields_state<Rule>(moments_[known->group], known->index) : StateDict{};
  }

  /// Returns the bytes of the moments that a parameter of `group` has on its device from its first update on,
  /// without its step count.
  [[nodiscard]] static std::int64_t state_bytes(const Group& group, const at::Tensor& parameter) {
    std::int64_t bytes = 0;
    for (const Field& field : Rule::kFields)
      if (!field.counter && field.kept(options_of(group), parameter))
        bytes += detail::moment_bytes(field, options_of(group), parameter);
    return bytes;
  }
  [[nodiscard]] std::int64_t moment_bytes(const Group& group, const at::Tensor& parameter) const override {
    return state_bytes(group, parameter);
  }

  [[nodiscard]] StateDict options_state(const Group& group) const override {
    StateDict out;
    std::apply([&](const auto&... each) { (put(out, each.name, options_of(group).*each.value), ...); },
               Rule::kOptions);
    return out;
  }
  [[nodiscard]] std::string class_name() const override { return message("looptorch::", Rule::kName); }

  /// Throws what `load_state_of` would throw, and changes nothing.
  void check_state_of(const at::Tensor& parameter, const StateDict& state) const override {
    const Position position = position_of(parameter);
    check_fields<Rule>(options_of(param_groups_[position.group]), parameter, state);
  }

  /// Loads the result of `state_of`, also from another device or dtype. Throws StateError, and changes
  /// nothing, if the names or shapes are not this optimizer's.
  void load_state_of(const at::Tensor& parameter, const StateDict& state) override {
    at::NoGradGuard no_gradients;
    refresh_groups();
    const Position position = position_of(parameter);
    const Group& group = param_groups_[position.group];
    load_fields<Rule>(options_of(group), group.params(), position.index, state, moments_[position.group]);
  }

  /// Returns the options of one of this optimizer's groups. Throws UsageError for another optimizer's group.
  [[nodiscard]] static const Options& options_of(const Group& group) { return rule_options<Rule>(group); }
  /// Returns a group's options for the program to change; later steps use them.
  [[nodiscard]] static Options& options_of(Group& group) {
    return const_cast<Options&>(options_of(std::as_const(group)));
  }

 protected:
  /// Calls `use(options, moments, index)` with the moments of a parameter, after it has made any that are
  /// missing. Does nothing for another optimizer's parameter.
  template <class Use>
  void with_moments(const at::Tensor& parameter, Use&& use) {
    at::NoGradGuard no_gradients;
    refresh_groups();
    const auto known = listed_.find(parameter);
    if (!known) return;
    const Group& group = param_groups_[known->group];
    const Options& options = options_of(group);
    require_updatable(parameter, Rule::kName);
    for (const Field& field : Rule::kFields) {
      check_shape(field, moments_[known->group].*field.list, known->index, parameter);
      begin_field(field, options, moments_[known->group].*field.list, group.params(), {known->index});
    }
    use(options, moments_[known->group], known->index);
  }

 private:
  using Update = FusedUpdate<Rule>;

  static std::unique_ptr<torch::optim::OptimizerOptions> make_options(const Options& options) {
    Rule::check(options);
    return std::make_unique<FusedGroupOptions<Options>>(options);
  }

  // ---- Parameters ----

  /// Adopts changes of the groups at the next step. LibTorch's `add_param_group` is not virtual and its
  /// groups are public, so a change cannot be observed earlier.
  void refresh_groups() {
    if (!listed_.match(param_groups_)) adopt_groups();
  }

  void adopt_groups() {
    std::unordered_set<const void*> seen;
    for (Group& group : param_groups_) {
      const Options& options = options_of(group);
      group.params() = distinct(group.params());
      for (const at::Tensor& parameter : group.params()) {
        require_listed_once(parameter, seen.insert(parameter.unsafeGetTensorImpl()).second, Rule::kName);
        if constexpr (requires { Rule::check_parameter(options, parameter); })
          Rule::check_parameter(options, parameter);
      }
    }
    moments_ = followed_moments<Rule>(listed_, moments_, param_groups_);
    listed_.refresh(param_groups_);
  }

  // ---- A step ----

  /// Returns the update of all parameters with a gradient; with `only`, of that parameter alone.
  [[nodiscard]] Update due_update(const at::Tensor* only = nullptr) {
    refresh_groups();
    Update update(param_groups_, moments_, rates_, lists_);
    update.find_due(only);
    return update;
  }

  void step_due(const GradientScale& scale, const at::Tensor& found_inf, const at::Tensor* only = nullptr) {
    at::NoGradGuard no_gradients;
    Update update = due_update(only);
    if (found_inf.defined() && update.some_first_update() && found_inf.item<double>() != 0) return;
    FusedFactors factors(scale, found_inf);
    update.step_groups(factors, Update::Stage::both);
  }

  // ---- State of single parameters ----

  Position position_of(const at::Tensor& parameter) const {
    if (const auto known = listed_.find(parameter); known && is_at(*known, parameter)) return *known;
    for (std::size_t i = 0; i < param_groups_.size(); ++i)
      for (std::size_t j = 0; j < param_groups_[i].params().size(); ++j)
        if (param_groups_[i].params()[j].is_same(parameter)) return {i, j};
    throw UsageError(
        message("a parameter of shape ", parameter.sizes(), " does not belong to this ", Rule::kName));
  }

  bool is_at(const Position& position, const at::Tensor& parameter) const {
    if (position.group >= param_groups_.size()) return false;
    const std::vector<at::Tensor>& listed = param_groups_[position.group].params();
    return position.index < listed.size() && listed[position.index].is_same(parameter);
  }

  ListedParameters listed_;       // the parameters that the moments belong to
  std::vector<Moments> moments_;  // by group
  FusedLists<Rule> lists_;
  std::optional<KeptRates> rates_;
};

}  // namespace looptorch::detail
