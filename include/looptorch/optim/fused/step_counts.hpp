// SPDX-License-Identifier: MIT
// Counts each parameter's steps on its device. Parameters that have always been updated together share one
// tensor, so that a step usually increments one number instead of hundreds. On a CPU hundreds of increments
// would cost as much as AdamW's kernel.
#pragma once

#include <looptorch/base/device/accelerator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/rsub.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace looptorch::detail {

/// A count that several parameters share.
struct SharedCount {
  at::Tensor tensor;
  std::size_t holders = 0;
  std::size_t due = 0;
};

/// The distinct counts of the parameters in `due`.
class SharedCounts {
 public:
  SharedCounts(const std::vector<at::Tensor>& counts, const std::vector<std::size_t>& due) {
    for (const std::size_t i : due) {
      SharedCount* known = find(counts[i]);
      if (!known) known = add(counts[i]);
      ++known->due;
    }
    for (const at::Tensor& count : counts)
      if (SharedCount* const known = find(count)) ++known->holders;
  }

  auto begin() { return distinct_.begin(); }
  auto end() { return distinct_.end(); }

 private:
  /// Begins where the last count was found: neighbours share one, or have successive ones.
  SharedCount* find(const at::Tensor& count) {
    for (std::size_t tried = 0; tried < distinct_.size(); ++tried, last_ = (last_ + 1) % distinct_.size())
      if (distinct_[last_].tensor.is_same(count)) return &distinct_[last_];
    return nullptr;
  }
  SharedCount* add(const at::Tensor& count) {
    last_ = distinct_.size();
    return &distinct_.emplace_back(SharedCount{count});
  }

  c10::SmallVector<SharedCount, 4> distinct_;
  std::size_t last_ = 0;
};

/// Adds one to fp32 counts of one device, or nothing if `found_inf` is 1. On a CPU it adds without an
/// operator, whose dispatch would cost a hundred times as much.
inline void add_one(at::TensorList counts, const std::optional<at::Tensor>& found_inf) {
  if (!counts.empty() && computes_on_cpu(counts.front())) {
    const float one = found_inf ? 1 - *found_inf->const_data_ptr<float>() : 1;
    for (const at::Tensor& count : counts) *count.mutable_data_ptr<float>() += one;
  } else if (found_inf) {
    at::_foreach_add_(counts, at::rsub(*found_inf, 1));
  } else {
    at::_foreach_add_(counts, 1);
  }
}

/// Adds one to the counts of the parameters in `due`, or nothing if `found_inf` is 1. A count that is shared
/// with a parameter not in `due` is copied first.
inline void advance_counts(std::vector<at::Tensor>& counts, const std::vector<std::size_t>& due,
                           const std::optional<at::Tensor>& found_inf) {
  c10::SmallVector<at::Tensor, 4> advanced;
  for (SharedCount& shared : SharedCounts(counts, due)) {
    advanced.push_back(shared.due == shared.holders ? shared.tensor : shared.tensor.clone());
    if (shared.due == shared.holders) continue;
    for (const std::size_t i : due)
      if (counts[i].is_same(shared.tensor)) counts[i] = advanced.back();
  }
  add_one(advanced, found_inf);
}

}  // namespace looptorch::detail
