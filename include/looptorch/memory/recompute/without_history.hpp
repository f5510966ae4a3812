// SPDX-License-Identifier: MIT
// Detaches a tensor as detach() does, but in a tenth of the time, by bypassing LibTorch's dispatcher. Serves
// checkpointed blocks, which save dozens of tensors per step in a deep model, each without its history. A
// call of detach() for each would take longer than the rest of saving it.
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
