// SPDX-License-Identifier: MIT
// The common part of all fused optimizers: parameter groups, moments, and one kernel call a group (and a
// device and dtype, if a group has several). A `Rule` adds the options, the moments and the kernel; see
// adam_rule.hpp.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/optim/any_optimizer.hpp>
#include <looptorch/optim/fused_call.hpp>
#include <looptorch/optim/gradients.hpp>
#include <looptorch/optim/kept_rates.hpp>
#include <looptorch/optim/listed_parameters.hpp>
#include <looptorch/optim/moment_fields.hpp>
#include <looptorch/optim/optimizer_state.hpp>
#include <looptorch/optim/step_counts.hpp>

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
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

/// `Rule` names the optimizer (`kName`), its `Options`, its `Moments` and their `kFields`. Its
/// `check(options)` throws UsageError. `first_differs(options)` is true if a parameter's first update differs
/// from later ones. `advance(moments, due, factors)` is called before a kernel that updates the parameters in
/// `due`. `apply(options, call)` calls the kernel. With `by_element` elements are updated apart. `kKernels`
/// are those of looptorch's own that `apply` launches where `kernels_for` finds them, which is declared where
/// such a Rule is (optim/kernels/kernel_table.hpp).
template <class Rule>
class FusedOptimizer : public AnyOptimizer {
 public:
  using Options = typename Rule::Options;
  using Moments = typename Rule::Moments;
  using AnyOptimizer::Group;
  using Field = MomentField<Moments, Options>;
  using Position = ListedParameters::Position;
  /// True if elements are updated apart from each other, so that ranks may share a parameter out.
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
  /// moments. Throws UsageError, before anything changes, for a gradient that is not dense and for a
  /// parameter that changed its shape.
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

  [[nodiscard]] std::shared_ptr<BegunStep> begin_step(const GradientScale& scale,
                                                      const at::Tensor& found_inf) override {
    at::NoGradGuard no_gradients;
    auto begun = std::make_shared<BegunStep>(BegunStep{{scale, found_inf}, due_counts().value()});
    step_groups(begun->factors, Half::first);
    return begun;
  }
  void finish_step(const BegunStep& begun) override {
    at::NoGradGuard no_gradients;
    refresh_groups();
    find_due(nullptr);
    FusedFactors factors = begun.factors;
    step_groups(factors, Half::second);
  }
  [[nodiscard]] bool can_begin(const BegunStep* other) override {
    const auto counts = due_counts();
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
    return group_options<FusedOptimizer>(group);
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
  [[nodiscard]] static const Options& options_of(const Group& group) {
    const auto* options = dynamic_cast<const FusedGroupOptions<Options>*>(&group.options());
    if (!options)
      throw UsageError(message("a parameter group of ", Rule::kName,
                               " has another optimizer's options: make it by ", Rule::kName, "::group"));
    return options->values;
  }

 protected:
  /// Calls `use(options, moments, index)` with the moments of a parameter, which it has from then on. Does
  /// nothing for a parameter of others.
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

  void step_due(const GradientScale& scale, const at::Tensor& found_inf, const at::Tensor* only = nullptr) {
    at::NoGradGuard no_gradients;
    refresh_groups();
    find_due(only);
    if (found_inf.defined() && some_first_update() && found_inf.item<double>() != 0) return;
    FusedFactors factors(scale, found_inf);
    step_groups(factors, Half::both);
  }

  /// The parts of a step: factors and step counts, then the kernels.
  enum class Half { first, second, both };

  void step_groups(FusedFactors& factors, Half half) {
    for (std::size_t i = 0; i < moments_.size(); ++i) step_group(i, factors, half);
  }

  /// Returns the step counts of the parameters that are due. Returns nothing if none is, one has no moments
  /// yet, or a count is shared with a parameter that is not due.
  std::optional<std::vector<at::Tensor>> due_counts() {
    refresh_groups();
    find_due(nullptr);
    std::vector<at::Tensor> counts;
    bool some = false;
    for (std::size_t i = 0; i < due_.size(); ++i)
      for (const Field& field : Rule::kFields) {
        const std::vector<at::Tensor>& list = moments_[i].*field.list;
        for (const std::size_t j : due_[i]) {
          const at::Tensor& parameter = param_groups_[i].params()[j];
          if (!field.kept(options_of(param_groups_[i]), parameter)) continue;
          if (!has(list, j) || list[j].device() != parameter.device()) return std::nullopt;
          if (field.counter) counts.push_back(list[j]);
        }
        if (field.counter)
          for (const SharedCount& shared : SharedCounts(list, due_[i]))
            if (shared.due > 0 && shared.due < shared.holders) return std::nullopt;
        some |= !due_[i].empty();
      }
    return some ? std::optional(std::move(counts)) : std::nullopt;
  }

  /// Finds the parameters with a gradient, or one of them. Throws for anything that a kernel would misread,
  /// before any parameter is updated.
  void find_due(const at::Tensor* only) {
    due_.resize(param_groups_.size());
    for (std::size_t i = 0; i < due_.size(); ++i) {
      const auto& parameters = param_groups_[i].params();
      due_[i].clear();
      for (std::size_t j = 0; j < parameters.size(); ++j) {
        const at::Tensor& gradient = parameters[j].grad();
        if (!gradient.defined() || (only && !parameters[j].is_same(*only))) continue;
        require_updatable(parameters[j], Rule::kName);
        require_dense(gradient, Rule::kName);
        for (const Field& field : Rule::kFields)
          check_shape(field, moments_[i].*field.list, j, parameters[j]);
        due_[i].push_back(j);
      }
    }
  }

  bool is_first_update(const Options& options, const Moments& moments, std::size_t index) const {
    return Rule::first_differs(options) && !has(moments.*Rule::kFields.front().list, index);
  }

  bool some_first_update() const {
    for (std::size_t i = 0; i < param_groups_.size(); ++i) {
      const Options& options = options_of(param_groups_[i]);
      if (!Rule::first_differs(options)) continue;
      for (const std::size_t j : due_[i])
        if (is_first_update(options, moments_[i], j)) return true;
    }
    return false;
  }

  void step_group(std::size_t index, FusedFactors& factors, Half half) {
    const Group& group = param_groups_[index];
    const Options& options = options_of(group);
    while (!due_[index].empty()) step_alike(index, options, group.params(), factors, half);
  }

  /// Updates the due parameters that are of the same kind as the first; the others stay due.
  void step_alike(std::size_t group, const Options& options, const std::vector<at::Tensor>& parameters,
                  FusedFactors& factors, Half half) {
    Moments& moments = moments_[group];
    const FusedKind kind = take_alike(options, parameters, moments, due_[group]);
    factors.move_to(kind.device);
    if (half == Half::first) return Rule::advance(moments, alike_, factors);
    const auto cleared = c10::make_scope_exit([this] { lists_.clear(); });
    gather_gradients(parameters);
    for (const Field& field : Rule::kFields)
      begin_field(field, options, moments.*field.list, parameters, alike_);
    const at::Tensor rate = rates_ ? rates_->on(kind.device, group, options.lr) : at::Tensor();
    if (half == Half::both) Rule::advance(moments, alike_, factors);
    // The kernels write to parameters without raising their version, which a graph that still needs the old
    // values checks.
    for (const std::size_t i : alike_) parameters[i].unsafeGetTensorImpl()->bump_version();
    if (alike_.size() == parameters.size()) {
      Rule::apply(options,
                  FusedCall<Moments>{parameters, lists_.gradients, moments, kind.first, factors, rate});
    } else {
      gather(parameters, moments);
      Rule::apply(options, FusedCall<Moments>{lists_.parameters, lists_.gradients, lists_.moments, kind.first,
                                              factors, rate});
    }
  }

  FusedKind take_alike(const Options& options, const std::vector<at::Tensor>& parameters,
                       const Moments& moments, std::vector<std::size_t>& due) {
    const auto kind_of = [&](std::size_t i) {
      return FusedKind{parameters[i].device(), parameters[i].scalar_type(),
                       is_first_update(options, moments, i)};
    };
    const FusedKind kind = kind_of(due.front());
    alike_.clear();
    std::size_t left = 0;
    for (const std::size_t i : due) kind_of(i) == kind ? alike_.push_back(i) : void(due[left++] = i);
    due.resize(left);
    return kind;
  }

  void gather_gradients(const std::vector<at::Tensor>& parameters) {
    for (const std::size_t i : alike_)
      lists_.gradients.push_back(fused_gradient(parameters[i], parameters[i].grad()));
  }

  void gather(const std::vector<at::Tensor>& parameters, const Moments& moments) {
    for (const std::size_t i : alike_) lists_.parameters.push_back(parameters[i]);
    for (const Field& field : Rule::kFields)
      if (!(moments.*field.list).empty())
        for (const std::size_t i : alike_) (lists_.moments.*field.list).push_back((moments.*field.list)[i]);
  }

  // ---- State of single parameters ----

  Position position_of(const at::Tensor& parameter) const {
    for (std::size_t i = 0; i < param_groups_.size(); ++i)
      for (std::size_t j = 0; j < param_groups_[i].params().size(); ++j)
        if (param_groups_[i].params()[j].is_same(parameter)) return {i, j};
    throw UsageError(
        message("a parameter of shape ", parameter.sizes(), " does not belong to this ", Rule::kName));
  }

  ListedParameters listed_;                    // the parameters that the moments belong to
  std::vector<Moments> moments_;               // by group
  std::vector<std::vector<std::size_t>> due_;  // by group: indices of parameters not updated yet
  std::vector<std::size_t> alike_;             // those in the current call
  FusedLists<Rule> lists_;
  std::optional<KeptRates> rates_;
};

}  // namespace looptorch::detail
