// SPDX-License-Identifier: MIT
// OptimizerRule, the concept that a rule must satisfy for FusedOptimizer<Rule> to be an optimizer.
// docs/writing_an_optimizer.md shows a rule.
#pragma once

#include <looptorch/optim/fused_call.hpp>
#include <looptorch/optim/moment_fields.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <string_view>
#include <vector>

namespace looptorch::detail {

/// True if `Rule` has
///   kName           the optimizer's name
///   Options         hyper-parameters of a group, with the rate `lr`
///   Moments         lists of tensors, one tensor a parameter; `kFields` describes each
///   check           throws UsageError for options out of range
///   first_differs   true if a parameter's first update differs from later ones
///   advance         called before a kernel that updates the parameters in `due`; counts the step
///   apply           calls the kernel
/// and may have
///   check_parameter throws UsageError for a parameter that it cannot take
///   by_element      elements are updated apart from each other
///   kKernels        looptorch's own, which `apply` launches where `kernels_for` finds them. That function is
///                   declared where such a rule is (optim/kernels/kernel_table.hpp)
template <class Rule>
concept OptimizerRule = requires(typename Rule::Options& options, typename Rule::Moments& moments,
                                 const std::vector<std::size_t>& due, const FusedFactors& factors,
                                 const FusedCall<typename Rule::Moments>& call) {
  { Rule::kName } -> std::convertible_to<std::string_view>;
  { options.lr } -> std::convertible_to<double>;
  {
    Rule::kFields.front()
    } -> std::convertible_to<MomentField<typename Rule::Moments, typename Rule::Options>>;
  Rule::check(options);
  { Rule::first_differs(options) } -> std::convertible_to<bool>;
  Rule::advance(moments, due, factors);
  Rule::apply(options, call);
};

}  // namespace looptorch::detail
