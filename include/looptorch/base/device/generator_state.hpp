// SPDX-License-Identifier: MIT
// Reading and setting the process's default random generators, under the lock that those who draw from them
// take.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace looptorch::detail {

/// The process's own for a device.
[[nodiscard]] inline const at::Generator& default_generator(at::Device device) {
  return at::globalContext().defaultGenerator(device);
}

[[nodiscard]] inline at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

[[nodiscard]] inline at::Generator copy_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.clone();
}

/// Throws c10::Error for a state that is not of such a generator.
inline void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace looptorch::detail
