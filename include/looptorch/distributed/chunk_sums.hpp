// SPDX-License-Identifier: MIT
// Sums gradients in a fixed order, so that the sum has the same bits on any number of ranks
// (DataParallel::reproducible). A window is divided into chunks, whose gradients are added as a binary tree:
// neighbouring chunks first, then neighbouring sums. Holds at most log2(chunks of this rank) sums besides the
// current gradients. Makes no more additions than accumulating in backward does.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch::detail {

class ChunkSums {
 public:
  /// Adds the gradients of the next chunk, one for each parameter; undefined for a parameter without one.
  void close(std::vector<at::Tensor> gradients) {
    for (std::int64_t index = count_++; index % 2 == 1; index /= 2) {
      for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = joined(sums_.back()[i], gradients[i]);
      sums_.pop_back();
    }
    sums_.push_back(std::move(gradients));
  }

  /// Returns the sum of all chunks for parameter `index`; `gradient` is the last chunk's. Call this once for
  /// each parameter, when 2^n - 1 chunks are closed. Writes to the sums, or to `gradient` if there are none.
  [[nodiscard]] at::Tensor with(std::size_t index, at::Tensor gradient) {
    for (auto sum = sums_.rbegin(); sum != sums_.rend(); ++sum) gradient = joined((*sum)[index], gradient);
    return gradient;
  }

  /// Returns how many chunks are closed.
  [[nodiscard]] std::int64_t count() const { return count_; }
  void clear() { sums_.clear(), count_ = 0; }

 private:
  /// Adds two gradients, in place. Adds 0 to a single one, which turns -0 into 0 as the sum over ranks does.
  static at::Tensor joined(const at::Tensor& a, const at::Tensor& b) {
    if (a.defined() && b.defined()) return a.add_(b);
    if (!a.defined() && !b.defined()) return {};
    return a.defined() ? a.add_(0.0) : b.add_(0.0);
  }

  std::vector<std::vector<at::Tensor>> sums_;  // each over fewer chunks than the one before
  std::int64_t count_ = 0;
};

}  // namespace looptorch::detail
