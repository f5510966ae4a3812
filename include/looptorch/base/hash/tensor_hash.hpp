// SPDX-License-Identifier: MIT
// Hashes the elements of a tensor on any device, with the same result in every run.
#pragma once

#include <looptorch/base/hash/stable_hash.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace looptorch {

/// Returns the `stable_hash` of a dense tensor's bytes in contiguous order; type and shape do not count.
[[nodiscard]] inline std::uint64_t stable_hash(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
  return stable_hash({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

}  // namespace looptorch
