// SPDX-License-Identifier: MIT
// Divides a device's sparse COO tensors into indices and values, which are dense tensors for kernels to work
// on, and joins them again.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch_test::accelerator {

/// Calls `visit` with the dense parts of a tensor: the indices and values of a sparse one, else itself.
template <class Visit>
void for_each_part(const at::Tensor& tensor, const Visit& visit) {
  if (!tensor.defined() || !tensor.is_sparse()) return visit(tensor);
  const auto* const sparse = at::sparse::get_sparse_impl(tensor);
  visit(sparse->indices());
  visit(sparse->values());
}

/// A tensor without its parts.
class Form {
 public:
  explicit Form(const at::Tensor& tensor) : is_sparse_(tensor.defined() && tensor.is_sparse()) {
    if (!is_sparse_) return;
    sizes_ = tensor.sizes().vec();
    is_coalesced_ = at::sparse::get_sparse_impl(tensor)->coalesced();
  }

  [[nodiscard]] bool is_sparse() const { return is_sparse_; }

  /// Returns the tensor of this form with the parts from `next` on, and moves `next` past them.
  [[nodiscard]] at::Tensor take(const std::vector<at::Tensor>& parts, std::size_t& next) const {
    if (!is_sparse_) return parts[next++];
    const at::Tensor &indices = parts[next++], &values = parts[next++];
    const at::Tensor tensor = at::_sparse_coo_tensor_unsafe(indices, values, sizes_);
    at::sparse::get_sparse_impl(tensor)->set_coalesced(is_coalesced_);
    return tensor;
  }

 private:
  bool is_sparse_;
  std::vector<std::int64_t> sizes_;
  bool is_coalesced_ = false;
};

}  // namespace looptorch_test::accelerator
