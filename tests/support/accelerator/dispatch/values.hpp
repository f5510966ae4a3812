// SPDX-License-Identifier: MIT
// Visits and replaces the tensors within an operator's arguments and results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>

namespace looptorch_test::accelerator {

/// Calls `visit` with each tensor of a value, in order.
template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) visit(*tensor);
  }
}

/// Returns the value with each tensor replaced by `change` of it, in the same order.
template <class Change>
c10::IValue with_tensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(change(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

/// Returns the bytes from a tensor's first element to its last.
[[nodiscard]] inline std::size_t extent_of(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) == 0) return 0;
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return static_cast<std::size_t>(last + 1) * tensor.element_size();
}

/// Returns the address of the first element, on a device, too.
[[nodiscard]] inline char* data_of(const at::Tensor& tensor) {
  auto* const base = static_cast<char*>(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->mutable_data());
  return base ? base + static_cast<std::size_t>(tensor.storage_offset()) * tensor.element_size() : nullptr;
}

[[nodiscard]] inline bool is_here(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_privateuseone();
}

}  // namespace looptorch_test::accelerator
