// SPDX-License-Identifier: MIT
// Does what detach() does at a tenth of its cost: a block of a deep model that is recomputed saves dozens of
// tensors per step, and a call through LibTorch's dispatcher takes longer than all else that it does for one.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

namespace looptorch::detail {

/// Returns the tensor without its history, in the same memory and with the same version counter.
[[nodiscard]] inline at::Tensor without_history(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      torch::autograd::impl::version_counter(tensor), /*allow_tensor_metadata_change=*/false));
}

}  // namespace looptorch::detail
