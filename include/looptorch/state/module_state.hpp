// SPDX-License-Identifier: MIT
// A module's parameters and buffers as a TensorMap, and back. Loading is strict and all or nothing: every
// name that is missing, surplus or of another shape stands in one error, and then nothing was changed.
// Templates, so that this header does not include torch/nn; they take a Module or a ModuleHolder.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/safetensors.hpp>

#include <c10/core/GradMode.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

namespace looptorch {

/// Weights that are not this module's; lists every name at fault.
struct ModuleStateError : Error {
  using Error::Error;
};

/// Parameters and buffers by their full names; the tensors share storage with the module.
template <class Module>
[[nodiscard]] TensorMap state_dict(const Module& module);

/// Copies the tensors into the module, on its device and in its dtype. Throws ModuleStateError if the names
/// or shapes are not exactly the module's.
template <class Module>
void load_state_dict(const Module& module, const TensorMap& tensors);

namespace detail {

/// Collects faults by kind, and names the first few of each.
class StateFaults {
 public:
  explicit StateFaults(const char* kind) : kind_(kind) {}

  void add(const std::string& what) {
    if (count_++ < kNamed) names_ += (names_.empty() ? "" : ", ") + what;
  }

  [[nodiscard]] std::string text() const {
    if (count_ == 0) return {};
    const auto more = count_ > kNamed ? message(", and ", count_ - kNamed, " more") : std::string();
    return message("; ", count_, " ", kind_, ": ", names_, more);
  }

 private:
  static constexpr std::size_t kNamed = 8;

  const char* kind_;
  std::size_t count_ = 0;
  std::string names_;
};

inline void check_state(const TensorMap& expected, const TensorMap& given) {
  StateFaults missing("missing"), surplus("surplus"), misshapen("of another shape");
  for (const auto& [name, tensor] : expected) {
    const auto found = given.find(name);
    if (found == given.end()) {
      missing.add(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      misshapen.add(message(name, " ", found->second.sizes(), " instead of ", tensor.sizes()));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (!expected.contains(name)) surplus.add(name);
  }
  if (const auto faults = missing.text() + surplus.text() + misshapen.text(); !faults.empty()) {
    throw ModuleStateError("the tensors do not fit the module" + faults);
  }
}

/// The module behind a ModuleHolder, or the module itself.
template <class Module>
const auto& held_module(const Module& module) {
  if constexpr (requires { module.ptr(); }) {
    return *module.ptr();
  } else {
    return module;
  }
}

}  // namespace detail

template <class Module>
TensorMap state_dict(const Module& module) {
  TensorMap tensors;
  for (const auto& item : detail::held_module(module).named_parameters(true)) {
    tensors.emplace(item.key(), item.value());
  }
  for (const auto& item : detail::held_module(module).named_buffers(true)) {
    tensors.emplace(item.key(), item.value());
  }
  return tensors;
}

template <class Module>
void load_state_dict(const Module& module, const TensorMap& tensors) {
  const auto own = state_dict(module);
  detail::check_state(own, tensors);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(tensors.find(name)->second);
}

}  // namespace looptorch
