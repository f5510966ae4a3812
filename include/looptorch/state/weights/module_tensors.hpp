// SPDX-License-Identifier: MIT
// Returns a module's parameters and buffers by name: `state_dict(module)`, as in PyTorch. To load them back,
// see module_state.hpp. The functions are templates over Module or ModuleHolder, so that this header need not
// include torch/nn.
#pragma once

#include <looptorch/base/tensors/tensor_map.hpp>

namespace looptorch {
namespace detail {

/// Returns the module behind a ModuleHolder or a shared pointer, or the module itself.
template <class Module>
const auto& held_module(const Module& module) {
  if constexpr (requires { module.ptr(); }) {
    return *module.ptr();
  } else if constexpr (requires { *module.get(); }) {
    return *module.get();
  } else {
    return module;
  }
}

template <class NamedTensors>
void add_defined(const NamedTensors& items, TensorMap& tensors) {
  for (const auto& item : items) {
    if (item.value().defined()) tensors.emplace(item.key(), item.value());
  }
}

}  // namespace detail

/// Returns parameters and buffers by their full names. The tensors share storage with the module. Undefined
/// buffers are skipped, such as the running mean of a BatchNorm that tracks none.
template <class Module>
[[nodiscard]] TensorMap state_dict(const Module& module) {
  TensorMap tensors;
  detail::add_defined(detail::held_module(module).named_parameters(true), tensors);
  detail::add_defined(detail::held_module(module).named_buffers(true), tensors);
  return tensors;
}

}  // namespace looptorch
