// SPDX-License-Identifier: MIT
// Checks a model's inputs against the names, types and sizes with which its program was exported. Without
// this check, an error would name an operator within the program instead of the input.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/exported/graph/signature.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace looptorch::detail::exported {

/// Returns "the model takes a, b".
[[nodiscard]] inline std::string list_inputs(const std::vector<ExportedInput>& wanted) {
  std::string names;
  for (const auto& input : wanted) names += (names.empty() ? "" : ", ") + input.name;
  return "the model takes " + names;
}

/// Returns named inputs in the program's order. Throws UsageError for one that is missing or not known.
[[nodiscard]] inline std::vector<at::Tensor> inputs_in_order(const TensorMap& named,
                                                             const std::vector<ExportedInput>& wanted) {
  std::vector<at::Tensor> inputs;
  for (const auto& input : wanted) {
    const auto found = named.find(input.name);
    if (found == named.end())
      throw UsageError("the input \"" + input.name + "\" is missing: " + list_inputs(wanted));
    inputs.push_back(found->second);
  }
  if (named.size() == inputs.size()) return inputs;
  for (const auto& item : named)
    if (std::none_of(wanted.begin(), wanted.end(), [&](const auto& one) { return one.name == item.first; }))
      throw UsageError("there is no input \"" + item.first + "\": " + list_inputs(wanted));
  return inputs;
}

/// Throws UsageError if an input has another type or size than its program takes. `sizes` has the sizes that
/// symbols have had in earlier inputs.
inline void check_input(const at::Tensor& input, const ExportedInput& wanted,
                        std::map<std::string, std::int64_t>& sizes) {
  const std::string name = "the input \"" + wanted.name + "\" ";
  if (!input.defined()) throw UsageError(name + "is undefined");
  const bool is_float = at::isFloatingType(wanted.dtype);
  if (is_float != input.is_floating_point())
    throw UsageError(message(name, "is ", input.scalar_type(), ", and was exported as ", wanted.dtype));
  if (input.dim() != static_cast<std::int64_t>(wanted.dims.size()))
    throw UsageError(message(name, "has sizes ", input.sizes(), ", and was exported with ",
                             wanted.dims.size(), " dimensions"));
  for (std::size_t d = 0; d < wanted.dims.size(); ++d) {
    const ExportedDim& dim = wanted.dims[d];
    const std::int64_t size = input.size(static_cast<std::int64_t>(d));
    const auto at = [&] { return message(name, "has sizes ", input.sizes(), ": dimension ", d, " "); };
    if (dim.size && size != *dim.size)
      throw UsageError(
          message(at(), "is fixed at ", *dim.size, ". Export the model with it dynamic for others"));
    if (size < dim.min || (dim.max && size > *dim.max))
      throw UsageError(message(at(), "may be ", dim.min, " to ", dim.max ? message(*dim.max) : "any size"));
    if (dim.symbol.empty()) continue;
    if (const auto [known, is_new] = sizes.emplace(dim.symbol, size); !is_new && known->second != size)
      throw UsageError(message(at(), "must be ", known->second, ", as another one"));
  }
}

/// Throws UsageError for inputs of a wrong number, type or size.
inline void check_inputs(const std::vector<at::Tensor>& inputs, const std::vector<ExportedInput>& wanted) {
  if (inputs.size() != wanted.size())
    throw UsageError(message(list_inputs(wanted), ": ", wanted.size(), " tensors, not ", inputs.size()));
  std::map<std::string, std::int64_t> sizes;
  for (std::size_t i = 0; i < inputs.size(); ++i) check_input(inputs[i], wanted[i], sizes);
}

}  // namespace looptorch::detail::exported
