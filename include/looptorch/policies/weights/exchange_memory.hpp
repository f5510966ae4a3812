// SPDX-License-Identifier: MIT
// Exchanges the memory behind two tensors without a copy; a second exchange restores both, bit for bit.
// AverageWeights puts its averages into the model in this way, for an evaluation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

namespace looptorch::detail {

/// True if the tensor covers its whole storage.
inline bool fills_storage(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() == tensor.nbytes();
}

/// Exchanges the memory of `weight` and `other`, which have one shape, type and device. If each fills its
/// storage, the storages exchange memory, so every view and alias of `weight` follows. Otherwise, as for
/// weights that share one buffer, only the tensor does. Version counters, gradients and `requires_grad` stay.
inline void exchange_memory(const at::Tensor& weight, at::Tensor& other) {
  if (fills_storage(weight) && fills_storage(other) && weight.strides() == other.strides()) {
    c10::StorageImpl& a = *weight.storage().unsafeGetStorageImpl();
    c10::StorageImpl& b = *other.storage().unsafeGetStorageImpl();
    b.set_data_ptr(a.set_data_ptr(b.set_data_ptr(c10::DataPtr())));
  } else {
    const at::Tensor was = weight.variable_data();
    weight.set_data(other);
    other = was;
  }
}

}  // namespace looptorch::detail
