// SPDX-License-Identifier: MIT
// Makes CPU tensors that share the memory of a device's tensors, for one call of a CPU kernel. So the
// device's tensors get everything that the kernel writes, also through views or without declaring it.
#pragma once

#include "support/accelerator/memory/arena.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <unordered_map>

namespace looptorch_test::accelerator {

class Aliases {
 public:
  explicit Aliases(Copy copy) : copy_(copy) {}

  /// Returns the CPU tensor for a device's tensor; other tensors unchanged.
  at::Tensor of(const at::Tensor& there);

  /// Returns the device's tensor for a result of the kernel: one on the storage of an argument, or a new one.
  /// `is_new` tells which.
  at::Tensor back(const at::Tensor& here, c10::Device device, bool& is_new);

  /// Gives a device's tensor the size, and the memory, that the kernel gave its CPU tensor.
  void follow(const at::Tensor& there, const at::Tensor& here);

 private:
  struct Alias {
    c10::Storage here, there;
    const void* data;
  };

  Copy copy_;
  std::unordered_map<c10::StorageImpl*, Alias> aliases_;
};

}  // namespace looptorch_test::accelerator
