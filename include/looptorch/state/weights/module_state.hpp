// SPDX-License-Identifier: MIT
// Loads a module's parameters and buffers from a TensorMap. Loading is strict: one error lists every name
// that is missing, surplus or of another shape, and nothing is changed. To load from a file, or only some
// names, use load_weights.hpp. The functions are templates over Module or ModuleHolder, so that this header
// need not include torch/nn.
#pragma once

#include <looptorch/state/weights/load_report.hpp>
#include <looptorch/state/weights/module_tensors.hpp>

#include <c10/core/GradMode.h>

namespace looptorch {

/// Copies the tensors into the module, on its device and in its dtype. Throws ModuleStateError if the names
/// or shapes are not exactly the module's. For tied weights one name is enough; two must agree.
template <class Module>
void load_state_dict(const Module& module, const TensorMap& tensors);

namespace detail {

/// Copies the tensors of `given` with names of `own`.
inline void copy_state(const TensorMap& own, const TensorMap& given) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) {
    if (const auto found = given.find(name); found != given.end()) tensor.copy_(found->second);
  }
}

}  // namespace detail

template <class Module>
void load_state_dict(const Module& module, const TensorMap& tensors) {
  const auto own = state_dict(module);
  auto report = detail::compare_state(own, tensors);
  if (const auto faults = detail::describe_faults(report); !faults.empty()) {
    throw ModuleStateError("the tensors do not fit the module" + faults, std::move(report));
  }
  detail::copy_state(own, tensors);
}

}  // namespace looptorch
