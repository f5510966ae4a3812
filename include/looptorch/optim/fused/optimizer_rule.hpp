// SPDX-License-Identifier: MIT
// OptimizerRule, the concept of a rule: what one optimizer has of its own, namely its options, its moments
// and the call of its kernel. FusedOptimizer<Rule> makes an optimizer of a rule; docs/writing_an_optimizer.md
// shows one.
#pragma once

#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/state/moment_fields.hpp>

#include <concepts>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace looptorch::detail {

/// A hyper-parameter of a rule: a number, a bool, an enum, or a std::array of numbers. Snapshots save it
/// under this name, and a resume that finds another value is refused.
template <class Options, class Value>
struct RuleOption {
  const char* name;
  Value Options::*value;
};
template <class Options, class Value>
RuleOption(const char*, Value Options::*) -> RuleOption<Options, Value>;

/// True if `Rule` has
///   kName           the optimizer's name
///   Options         hyper-parameters of a group, with the rate `lr`
///   kOptions        a std::tuple of RuleOption: all members of `Options` but the rate
///   Moments         lists of tensors, one tensor a parameter; `kFields` describes each
///   check           throws UsageError for options out of range
///   apply           calls the kernel
/// and may have
///   check_parameter throws UsageError for a parameter that it cannot take
///   first_differs   true if a parameter's first update differs from later ones
///   by_element      elements are updated apart from each other
///   kKernels        looptorch's kernels, launched by `apply` if `kernels_for` finds them; the header that
///                   defines such a rule includes optim/kernels/kernel_table.hpp
template <class Rule>
concept OptimizerRule = requires(typename Rule::Options& options,
                                 const FusedCall<typename Rule::Moments>& call) {
  { Rule::kName } -> std::convertible_to<std::string_view>;
  { options.lr } -> std::convertible_to<double>;
  std::tuple_size<std::remove_cvref_t<decltype(Rule::kOptions)>>::value;
  {
    Rule::kFields.front()
    } -> std::convertible_to<MomentField<typename Rule::Moments, typename Rule::Options>>;
  Rule::check(options);
  Rule::apply(options, call);
};

}  // namespace looptorch::detail
