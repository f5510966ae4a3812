// SPDX-License-Identifier: MIT
// Notes whether an objective writes to its batch in place. Such a window or evaluation cannot run again.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/loop/step/redo_state.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace looptorch::detail {

/// The error of an objective that writes to its batch, when the window or the evaluation must run again.
inline constexpr const char* kWritesToBatch =
    "the objective writes to its batch in place, so it cannot run again on it: work on a copy, as by "
    "`x = batch.x / 255` instead of `batch.x.div_(255)`.";

/// Returns a number that grows when one of the batch's tensors is written to.
template <class Batch>
[[nodiscard]] std::int64_t versions_of(const Batch& batch) {
  std::int64_t sum = 0;
  for_each_tensor(batch, [&](const at::Tensor& tensor) {
    if (tensor.defined() && !tensor.is_inference()) sum += static_cast<std::int64_t>(tensor._version());
  });
  return sum;
}

/// Notes, as it is destroyed, whether a kept batch's tensors were written to while it lived.
template <class Batch>
class BatchWatch {
 public:
  BatchWatch(RedoState& redo, const Batch& batch) : redo_(redo), batch_(batch) {}
  ~BatchWatch() { redo_.batch_was_written |= versions_of(batch_) != before_; }
  BatchWatch(const BatchWatch&) = delete;
  BatchWatch& operator=(const BatchWatch&) = delete;

 private:
  RedoState& redo_;
  const Batch& batch_;
  std::int64_t before_ = versions_of(batch_);
};

}  // namespace looptorch::detail
