// SPDX-License-Identifier: MIT
// Caches what policies compute from an update's weights, such as casts to 16 bits. The micro-batches of a
// window share the cache until a weight changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

namespace looptorch::detail {

class DerivedWeights {
 public:
  /// Drops the cache if `weights` have changed since it was made. Call before a forward pass and, for layers
  /// that write to their weights, after it.
  void drop_if_changed(const std::vector<at::Tensor>& weights) {
    if (kept_ && has_changed(weights)) drop();
  }
  /// Returns where a forward pass on `weights` may keep what it derives.
  std::shared_ptr<void>* place(const std::vector<at::Tensor>& weights) {
    if (!kept_) {
      seen_.clear();
      for (const at::Tensor& weight : weights) seen_.push_back(value_of(weight));
    }
    return &kept_;
  }
  void drop() { kept_.reset(); }

 private:
  using Value = std::tuple<const void*, const void*, std::int64_t>;
  static Value value_of(const at::Tensor& weight) {
    return {weight.unsafeGetTensorImpl(), weight.has_storage() ? weight.storage().data() : nullptr,
            weight._version()};
  }
  [[nodiscard]] bool has_changed(const std::vector<at::Tensor>& weights) const {
    if (weights.size() != seen_.size()) return true;
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (value_of(weights[i]) != seen_[i]) return true;
    return false;
  }

  std::shared_ptr<void> kept_;
  std::vector<Value> seen_;  // the weights that the cache was derived from
};

}  // namespace looptorch::detail
