// SPDX-License-Identifier: MIT
// Removes duplicates from a list of tensors, such as tied weights, and subtracts one list from another.
// Handles to the same tensor count as equal.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <vector>

namespace looptorch::detail {

/// Returns each tensor once, in the order of first occurrence: models list a tied weight twice.
inline std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors)
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(tensor);
  return result;
}

/// Returns those of `all`, each once, that are not among `inside`.
inline std::vector<at::Tensor> without(const std::vector<at::Tensor>& all,
                                       const std::vector<at::Tensor>& inside) {
  std::unordered_set<const void*> excluded;
  for (const at::Tensor& tensor : inside) excluded.insert(tensor.unsafeGetTensorImpl());
  std::vector<at::Tensor> rest;
  for (const at::Tensor& tensor : all)
    if (excluded.insert(tensor.unsafeGetTensorImpl()).second) rest.push_back(tensor);
  return rest;
}

}  // namespace looptorch::detail
