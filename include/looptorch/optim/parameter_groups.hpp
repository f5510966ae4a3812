// SPDX-License-Identifier: MIT
// Makes parameter groups by patterns of names: for example another learning rate for the encoder, or no
// weight decay for norms and biases.
//
//   FusedAdamW optimizer(decay_matrices_only<FusedAdamW>(*net, {.lr = 1e-4}));
//
// The functions are templates, so that this header does not include torch/nn. They take a Module, a
// ModuleHolder or a pointer.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/name_pattern.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch {

/// Options for parameters with names that match one of the patterns: `*` matches any characters, dots
/// included, `?` one, `[abc]` one of several. Omitted options have the defaults of their type, not those of
/// the other parameters.
template <class Options>
struct GroupRule {
  std::vector<std::string> patterns;
  Options options;
};

/// A parameter under all its names: a tied weight has several.
struct NamedParameter {
  at::Tensor tensor;
  std::vector<std::string> names;
};

namespace detail {

template <class Optimizer>
struct OptimizerOptionsOf {};  // LibTorch's optimizers: name the options
// clang-format off
template <class Optimizer>
  requires requires { typename Optimizer::Options; }
struct OptimizerOptionsOf<Optimizer> {
  using type = typename Optimizer::Options;
};
// clang-format on

/// Returns all parameters, frozen ones included, each once.
template <class Module>
std::vector<NamedParameter> named_parameters(const Module& module) {
  if constexpr (requires { module.named_parameters(true); }) {
    std::vector<NamedParameter> result;
    std::unordered_map<const void*, std::size_t> known;
    for (const auto& item : module.named_parameters(true)) {
      const auto [place, is_new] = known.emplace(item.value().unsafeGetTensorImpl(), result.size());
      if (is_new) result.push_back({item.value(), {}});
      result[place->second].names.push_back(item.key());
    }
    return result;
  } else {
    return named_parameters(*module);
  }
}

inline bool matches(const NamedParameter& parameter, const std::string& pattern) {
  return std::any_of(parameter.names.begin(), parameter.names.end(),
                     [&](const std::string& name) { return matches_pattern(name, pattern); });
}

inline bool matches(const NamedParameter& parameter, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(parameter, pattern); });
}

/// Throws UsageError for a pattern that matches nothing.
inline void check_patterns(const std::vector<NamedParameter>& parameters,
                           const std::vector<std::string>& patterns) {
  constexpr std::size_t kNamed = 6;
  for (const std::string& pattern : patterns) {
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&](const NamedParameter& parameter) { return matches(parameter, pattern); }))
      continue;
    std::string names;
    for (std::size_t i = 0; i < std::min(kNamed, parameters.size()); ++i)
      names += (i == 0 ? "" : ", ") + parameters[i].names.front();
    throw UsageError(message("no parameter of the model matches '", pattern, "'; it has ", parameters.size(),
                             ": ", names, parameters.size() > kNamed ? ", ..." : ""));
  }
}

template <class Optimizer, class Options>
torch::optim::OptimizerParamGroup parameter_group(std::vector<at::Tensor> parameters,
                                                  const Options& options) {
  if constexpr (requires { Optimizer::group(parameters, options); })
    return Optimizer::group(std::move(parameters), options);
  else
    return {std::move(parameters), std::make_unique<Options>(options)};
}

template <class Options>
Options without_decay(Options options) {
  if constexpr (requires { options.weight_decay = 0.0; })
    options.weight_decay = 0.0;
  else
    options.weight_decay(0.0);  // LibTorch's setter
  return options;
}

}  // namespace detail

/// Returns the model's parameters in groups for `Optimizer`'s constructor. The first group has the parameters
/// that no rule matches, with the defaults. Then comes one group a rule, in order; the first rule that
/// matches takes a parameter, and empty groups keep their position. Frozen parameters are included. A tied
/// weight comes once, and each of its names can match. Throws UsageError for a pattern that matches no
/// parameter.
///
/// For LibTorch's own optimizers, name the type of the defaults: `parameter_groups<torch::optim::Adam>(net,
/// torch::optim::AdamOptions(1e-3), rules)`.
template <class Optimizer, class Options = typename detail::OptimizerOptionsOf<Optimizer>::type, class Module>
[[nodiscard]] std::vector<torch::optim::OptimizerParamGroup> parameter_groups(
    const Module& model, Options defaults,
    const std::type_identity_t<std::vector<GroupRule<Options>>>& rules = {}) {
  const auto parameters = detail::named_parameters(model);
  for (const auto& rule : rules) detail::check_patterns(parameters, rule.patterns);
  std::vector<std::vector<at::Tensor>> members(rules.size() + 1);
  for (const auto& parameter : parameters) {
    const auto first = std::find_if(rules.begin(), rules.end(), [&](const GroupRule<Options>& candidate) {
      return detail::matches(parameter, candidate.patterns);
    });
    const auto rule = static_cast<std::size_t>(first - rules.begin());
    members[rule == rules.size() ? 0 : rule + 1].push_back(parameter.tensor);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.push_back(detail::parameter_group<Optimizer>(std::move(members[0]), defaults));
  for (std::size_t i = 0; i < rules.size(); ++i)
    groups.push_back(detail::parameter_group<Optimizer>(std::move(members[i + 1]), rules[i].options));
  return groups;
}

/// Returns groups as `parameter_groups`, without weight decay for parameters of fewer than 2 dimensions: the
/// weights of norms and all biases, which the usual recipes exempt. The groups of `parameter_groups` come
/// first, with the other parameters; then, in the same order, one for the exempt parameters of each. Throws
/// UsageError for a pattern that matches no parameter.
template <class Optimizer, class Options = typename detail::OptimizerOptionsOf<Optimizer>::type, class Module>
[[nodiscard]] std::vector<torch::optim::OptimizerParamGroup> decay_matrices_only(
    const Module& model, Options defaults,
    const std::type_identity_t<std::vector<GroupRule<Options>>>& rules = {}) {
  auto groups = parameter_groups<Optimizer, Options>(model, defaults, rules);
  std::vector<torch::optim::OptimizerParamGroup> exempt;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto& parameters = groups[i].params();
    const auto first = std::stable_partition(parameters.begin(), parameters.end(),
                                             [](const at::Tensor& tensor) { return tensor.dim() >= 2; });
    exempt.push_back(detail::parameter_group<Optimizer>(
        {first, parameters.end()}, detail::without_decay(i == 0 ? defaults : rules[i - 1].options)));
    parameters.erase(first, parameters.end());
  }
  for (auto& group : exempt) groups.push_back(std::move(group));
  return groups;
}

/// Returns patterns for all parameters with fewer than 2 dimensions: norms' weights and all biases, which the
/// usual recipes exempt from weight decay.
template <class Module>
[[nodiscard]] std::vector<std::string> norms_and_biases(const Module& model) {
  std::vector<std::string> patterns;
  for (const auto& parameter : detail::named_parameters(model))
    if (parameter.tensor.dim() < 2)
      for (const auto& name : parameter.names) patterns.push_back(detail::escaped_pattern(name));
  return patterns;
}

}  // namespace looptorch
