// SPDX-License-Identifier: MIT
// Copies of a model's buffers from before an update's share of a window, so that a share that does not count
// leaves nothing in them. The copies are reused from window to window.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Buffers and their copies.
class KeptBuffers {
 public:
  /// Copies these buffers.
  void keep(const std::vector<at::Tensor>& buffers) {
    kept_.resize(buffers.size());
    if (buffers.empty()) return;
    at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      auto& [buffer, copy] = kept_[i];
      const bool same = copy.defined() && buffer.is_same(buffers[i]) && copy.sizes() == buffers[i].sizes() &&
                        copy.device() == buffers[i].device();
      buffer = buffers[i];
      same ? static_cast<void>(copy.copy_(buffer)) : static_cast<void>(copy = buffer.detach().clone());
    }
  }

  /// Writes the copies back.
  void put_back() {
    at::NoGradGuard no_gradients;
    for (auto& [buffer, copy] : kept_) buffer.copy_(copy);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // a buffer, and its copy
};

}  // namespace looptorch::detail
