// SPDX-License-Identifier: MIT
// Copies a model's weights to host memory without a wait for the device. RestoreBest keeps the best weights
// in such copies.
#pragma once

#include <looptorch/policies/weights/host_copies.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::detail {

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
    pending_.clear();
    for (const auto& [name, weight] : weights) {
      begin_copy_to_host(copies_.at(name), weight);
      pending_.add(weight.device());
    }
    pending_.record();
  }

  /// Takes copies that lie in host memory.
  void take(ByName copies) {
    pending_.clear();
    copies_ = std::move(copies);
  }

  /// Returns the copies, and waits for those that are under way.
  [[nodiscard]] const ByName& by_name() const {
    pending_.wait();
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
  mutable PendingCopies pending_;
};

}  // namespace looptorch::detail
