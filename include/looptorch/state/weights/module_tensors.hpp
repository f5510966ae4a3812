// SPDX-License-Identifier: MIT
// `state_dict(module)`, a module's parameters and buffers by name. To load them back, see module_state.hpp.
// Templates, so that this header does not include torch/nn; they take a Module or a ModuleHolder.
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
