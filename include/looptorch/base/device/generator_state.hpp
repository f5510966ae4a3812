// SPDX-License-Identifier: MIT
// Reads, copies and sets the state of a random generator, and finds a device's default one. Holds the
// generator's lock meanwhile, as LibTorch requires. Snapshots, rollbacks and graphs use these functions.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace looptorch::detail {

/// Returns the process's default generator for a device.
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

/// Sets a generator's state. Throws c10::Error if the state is of another kind of generator.
inline void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace looptorch::detail
