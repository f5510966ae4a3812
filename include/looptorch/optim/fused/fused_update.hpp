// SPDX-License-Identifier: MIT
// Makes one step of a fused optimizer. Finds the parameters that have a gradient, divides each group into
// lists of one device and dtype, and calls the rule's kernel once for each list. fused_optimizer.hpp owns the
// groups, moments and rates.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/fused/kept_rates.hpp>
#include <looptorch/optim/fused/optimizer_rule.hpp>
#include <looptorch/optim/fused/step_counts.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/state/moment_fields.hpp>

#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the options of a group of Rule's optimizer. Throws UsageError for another optimizer's group.
template <OptimizerRule Rule>
[[nodiscard]] const typename Rule::Options& rule_options(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = dynamic_cast<const FusedGroupOptions<typename Rule::Options>*>(&group.options());
  if (!options)
    throw UsageError(message("a parameter group of ", Rule::kName,
                             " has another optimizer's options: make it by ", Rule::kName, "::group"));
  return options->values;
}

/// One step over all groups of an optimizer: `find_due`, then `step_groups`.
template <OptimizerRule Rule>
class FusedUpdate {
 public:
  using Options = typename Rule::Options;
  using Moments = typename Rule::Moments;
  using Group = torch::optim::OptimizerParamGroup;

  /// The parts of a step: factors and step counts, then the kernels.
  enum class Stage { counts, kernels, both };

  FusedUpdate(const std::vector<Group>& groups, std::vector<Moments>& moments,
              std::optional<KeptRates>& rates, FusedLists<Rule>& lists)
      : groups_(groups), moments_(moments), rates_(rates), lists_(lists) {}

  /// Finds the parameters with a gradient; with `only`, looks at that parameter alone. Throws for anything
  /// that a kernel would misread, before any parameter is updated.
  void find_due(const at::Tensor* only) {
    lists_.due.resize(groups_.size());
    for (std::size_t i = 0; i < lists_.due.size(); ++i) {
      const auto& parameters = groups_[i].params();
      lists_.due[i].clear();
      for (std::size_t j = 0; j < parameters.size(); ++j) {
        if (only && !parameters[j].is_same(*only)) continue;
        const at::Tensor& gradient = parameters[j].grad();
        if (!gradient.defined()) continue;
        require_updatable(parameters[j], Rule::kName);
        require_dense(gradient, Rule::kName);
        require_same_shape(gradient, parameters[j], Rule::kName);
        for (const Field& field : Rule::kFields)
          check_shape(field, moments_[i].*field.list, j, parameters[j]);
        lists_.due[i].push_back(j);
      }
    }
  }

  /// True if a parameter that is due has its first update, and the rule treats that differently.
  [[nodiscard]] bool some_first_update() const {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const Options& options = rule_options<Rule>(groups_[i]);
      if (!first_differs(options)) continue;
      for (const std::size_t j : lists_.due[i])
        if (is_first_update(options, moments_[i], j)) return true;
    }
    return false;
  }

  /// Returns the step counts of the parameters that are due. Returns nothing if none is, one has no moments
  /// yet, or a count is shared with a parameter that is not due.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> due_counts() const {
    std::vector<at::Tensor> counts;
    bool some = false;
    for (std::size_t i = 0; i < lists_.due.size(); ++i)
      for (const Field& field : Rule::kFields) {
        const std::vector<at::Tensor>& list = moments_[i].*field.list;
        for (const std::size_t j : lists_.due[i]) {
          const at::Tensor& parameter = groups_[i].params()[j];
          if (!field.kept(rule_options<Rule>(groups_[i]), parameter)) continue;
          if (!has(list, j) || list[j].device() != parameter.device()) return std::nullopt;
          if (field.counter) counts.push_back(list[j]);
        }
        if (field.counter)
          for (const SharedCount& shared : SharedCounts(list, lists_.due[i]))
            if (shared.due < shared.holders) return std::nullopt;
        some |= !lists_.due[i].empty();
      }
    return some ? std::optional(std::move(counts)) : std::nullopt;
  }

  /// Updates the parameters that are due; none is due afterwards.
  void step_groups(FusedFactors& factors, Stage stage) {
    for (std::size_t i = 0; i < moments_.size(); ++i) step_group(i, factors, stage);
  }

 private:
  using Field = MomentField<Moments, Options>;
  static_assert(
      !requires { &Rule::advance; },
      "looptorch: an optimizer's rule has no `advance`: mark the field that counts steps by `.counter`.");

  static bool first_differs(const Options& options) {
    if constexpr (requires { Rule::first_differs(options); })
      return Rule::first_differs(options);
    else
      return false;
  }

  bool is_first_update(const Options& options, const Moments& moments, std::size_t index) const {
    return first_differs(options) && !has(moments.*Rule::kFields.front().list, index);
  }

  /// Counts the step of the parameters in `alike`, unless it is skipped.
  void advance(Moments& moments, const FusedFactors& factors) {
    for (const Field& field : Rule::kFields)
      if (field.counter) advance_counts(moments.*field.list, lists_.alike, factors.found_inf);
  }

  void step_group(std::size_t index, FusedFactors& factors, Stage stage) {
    const Group& group = groups_[index];
    const Options& options = rule_options<Rule>(group);
    while (!lists_.due[index].empty()) step_alike(index, options, group.params(), factors, stage);
  }

  /// Updates the due parameters that are of the same kind as the first; the others stay due.
  void step_alike(std::size_t group, const Options& options, const std::vector<at::Tensor>& parameters,
                  FusedFactors& factors, Stage stage) {
    Moments& moments = moments_[group];
    const FusedKind kind = take_alike(options, parameters, moments, lists_.due[group]);
    factors.move_to(kind.device);
    if (stage == Stage::counts) return advance(moments, factors);
    const auto cleared = c10::make_scope_exit([this] { lists_.clear_call(); });
    gather_gradients(parameters);
    for (const Field& field : Rule::kFields)
      begin_field(field, options, moments.*field.list, parameters, lists_.alike);
    const at::Tensor rate = rates_ ? rates_->on(kind.device, group, options.lr) : at::Tensor();
    if (stage == Stage::both) advance(moments, factors);
    // The kernels write to parameters without raising their version, which a graph that still needs the old
    // values checks.
    for (const std::size_t i : lists_.alike) parameters[i].unsafeGetTensorImpl()->bump_version();
    if (lists_.alike.size() == parameters.size()) {
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
    lists_.alike.clear();
    std::size_t left = 0;
    for (const std::size_t i : due) kind_of(i) == kind ? lists_.alike.push_back(i) : void(due[left++] = i);
    due.resize(left);
    return kind;
  }

  void gather_gradients(const std::vector<at::Tensor>& parameters) {
    for (const std::size_t i : lists_.alike)
      lists_.gradients.push_back(fused_gradient(parameters[i], parameters[i].grad()));
  }

  void gather(const std::vector<at::Tensor>& parameters, const Moments& moments) {
    for (const std::size_t i : lists_.alike) lists_.parameters.push_back(parameters[i]);
    for (const Field& field : Rule::kFields)
      if (!(moments.*field.list).empty())
        for (const std::size_t i : lists_.alike)
          (lists_.moments.*field.list).push_back((moments.*field.list)[i]);
  }

  const std::vector<Group>& groups_;
  std::vector<Moments>& moments_;
  std::optional<KeptRates>& rates_;
  FusedLists<Rule>& lists_;
};

}  // namespace looptorch::detail
