// SPDX-License-Identifier: MIT
// Counts how many kernels LibTorch 2.11 launches on CUDA for one call of an operator, since the simulated
// accelerator has one kernel for each. Rules:
//
// - An operator is one launch. Views and tensors without contents have no kernel.
// - Operators on lists (`_foreach_*`, `_amp_foreach_*`, `_fused_adam*`, `_fused_sgd*`) take the tensors in
//   chunks of 65,536 elements: a launch has at most 320 chunks and, for 1 to 5 lists, 110, 64, 48, 36 or 30
//   tensors (ATen/native/cuda/MultiTensorApply.cuh). Lists whose tensors differ in type, or in layout from
//   list to list, are worked through tensor by tensor.
// - `_foreach_norm` also clears its partial sums, and joins those of 512 tensors a launch.
// - `cat` copies 128 tensors a launch.
//
// Not modelled: cuBLAS may split a product into two kernels, and layers that this device computes by several
// operators (dropout, recurrent cells) count each of them where CUDA has one.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <string>

namespace looptorch_test::accelerator {

/// `name` is that of the schema, "aten::add.Tensor".
[[nodiscard]] std::int64_t launches_on_cuda(const std::string& name, const torch::jit::Stack& arguments);

}  // namespace looptorch_test::accelerator
