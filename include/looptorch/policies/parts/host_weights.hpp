// SPDX-License-Identifier: MIT
// Copies a model's weights to host memory without a wait for the device. RestoreBest keeps the best weights
// in such copies.
#pragma once

#include <looptorch/base/device/accelerator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Host memory for copies of a device's tensors, in one block, since the allocator of pinned memory rounds
/// each to a power of two. Pageable if the system allows no more pinned memory.
class HostBlock {
 public:
  explicit HostBlock(std::int64_t bytes) {
    const at::TensorOptions options(at::kByte);
    try {
      bytes_ = at::empty({bytes}, options.pinned_memory(true));
    } catch (const c10::Error&) {
      bytes_ = at::empty({bytes}, options);
    }
  }

  /// Returns the bytes that a tensor takes in a block.
  [[nodiscard]] static std::int64_t size_of(const at::Tensor& tensor) {
    return (static_cast<std::int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  /// Returns an uninitialised tensor of the same shape, dtype and memory format, next in the block.
  [[nodiscard]] at::Tensor take_like(const at::Tensor& tensor) {
    const at::Tensor strides = at::empty_like(tensor, tensor.options().device(at::kMeta));
    const auto offset = used_ / static_cast<std::int64_t>(tensor.element_size());
    used_ += size_of(tensor);
    return at::empty({0}, at::TensorOptions(tensor.scalar_type()))
        .set_(bytes_.storage(), offset, tensor.sizes(), strides.strides());
  }

 private:
  static constexpr std::int64_t kAlignment = 64;
  at::Tensor bytes_;
  std::int64_t used_ = 0;
};

/// Copies of weights, by name.
class HostWeights {
 public:
  using ByName = std::map<std::string, at::Tensor>;

  [[nodiscard]] bool empty() const { return copies_.empty(); }

  /// Copies weights as they are now, in the order of each device's current stream, without a wait. Reuses the
  /// memory of earlier copies.
  void keep(const ByName& weights) {
    at::NoGradGuard no_gradients;
    if (!fits(weights)) allocate(weights);
    arrivals_.clear();
    for (const auto& [name, weight] : weights) {
      copies_.at(name).copy_(weight, /*non_blocking=*/true);
      if (!weight.is_cpu() && (arrivals_.empty() || arrivals_.back().first != weight.device()))
        arrivals_.emplace_back(weight.device(), c10::Event(weight.device().type()));
    }
    for (auto& [device, arrival] : arrivals_) arrival.record(stream_of(device));
  }

  /// Takes copies that lie in host memory.
  void take(ByName copies) {
    arrivals_.clear();
    copies_ = std::move(copies);
  }

  /// Returns the copies, and waits for those that are under way.
  [[nodiscard]] const ByName& by_name() const {
    for (const auto& [device, arrival] : arrivals_) arrival.synchronize();
    arrivals_.clear();
    return copies_;
  }

 private:
  [[nodiscard]] bool fits(const ByName& weights) const {
    if (copies_.size() != weights.size()) return false;
    for (const auto& [name, weight] : weights) {
      const auto copy = copies_.find(name);
      if (copy == copies_.end() || copy->second.sizes() != weight.sizes() ||
          copy->second.scalar_type() != weight.scalar_type())
        return false;
    }
    return true;
  }

  void allocate(const ByName& weights) {
    std::int64_t bytes = 0;
    for (const auto& [name, weight] : weights) bytes += weight.is_cpu() ? 0 : HostBlock::size_of(weight);
    std::optional<HostBlock> block;
    if (bytes > 0) block.emplace(bytes);
    copies_.clear();
    for (const auto& [name, weight] : weights)
      copies_[name] = weight.is_cpu() ? at::empty_like(weight) : block->take_like(weight);
  }

  ByName copies_;
  mutable std::vector<std::pair<c10::Device, c10::Event>> arrivals_;  // of unfinished copies
};

}  // namespace looptorch::detail
