// SPDX-License-Identifier: MIT
// Memory for a batch that is collated: page-locked where the loader pins, so that nothing is copied a second
// time. LibTorch's pool of pinned memory gives a block out again once no tensor holds it and every copy from
// it is done, which it learns by events: these are the loader's reused slots.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace looptorch {
namespace detail {

inline thread_local bool slot_pins = false;

/// While it lives, `batch_empty` on this thread gives memory of this kind.
class SlotScope {
 public:
  explicit SlotScope(bool pins) : before_(std::exchange(slot_pins, pins)) {}
  SlotScope(const SlotScope&) = delete;
  SlotScope& operator=(const SlotScope&) = delete;
  ~SlotScope() { slot_pins = before_; }

 private:
  bool before_;
};

}  // namespace detail

/// A tensor without values for a collate to fill, in the loader's page-locked memory where it has some:
/// `at::empty` with one copy less. Elsewhere it is `at::empty` itself.
inline at::Tensor batch_empty(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  return at::empty(sizes, detail::slot_pins ? options.device(at::kCPU).pinned_memory(true) : options);
}

}  // namespace looptorch
