// SPDX-License-Identifier: MIT
// Replaces the kernels of matmuls with ones that compute nothing: they allocate the result and the real
// kernel's workspace.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/arithmetic.hpp>
#include <looptorch/shapes_only/kernel_call.hpp>
#include <looptorch/shapes_only/virtual_blocks.hpp>
#include <looptorch/shapes_only/workspace.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch::detail::shapes {

/// The longest dimension with which a matmul in bf16 is measured: beyond it the buffers for packed blocks
/// change by less than 1 MB, and the matmul itself would take seconds.
inline constexpr std::int64_t kLongestMeasured = 2048;

/// Returns the bytes of a matmul's workspace. Kernels of fp32 need none; those of bf16 need the result in
/// fp32, or what is measured.
inline std::int64_t workspace_of_matmul(const c10::OperatorHandle& op, const Arguments& arguments,
                                        const at::Tensor& result) {
  if (!counted_run.workspaces || result.scalar_type() != at::kBFloat16 || result.dim() != 2) return 0;
  if (bf16_matmuls_take_fp32()) return 4 * result.numel();
  return KernelCall{op, arguments, {}, kLongestMeasured}.workspace();
}

/// True if a matmul's result is in a virtual block. Its factors may be in real ones, as an adapter's are.
[[nodiscard]] inline bool makes_virtual_matmul(const Arguments& arguments) {
  const bool adds = arguments.name(1) != "mat2";  // addmm and baddbmm begin with what they add to
  const at::Tensor &left = arguments[adds ? 1 : 0].toTensor(), &right = arguments[adds ? 2 : 1].toTensor();
  if (!left.is_cpu() || !right.is_cpu() || steers_kernels(left.scalar_type())) return false;
  const auto elements = left.numel() / std::max<std::int64_t>(left.size(-1), 1) * right.size(-1);
  return elements * static_cast<std::int64_t>(left.element_size()) >=
         static_cast<std::int64_t>(VirtualBlocks::kLeast);
}

/// Allocates a matmul's result and its workspace.
inline bool allocate_matmul(const c10::OperatorHandle& op, Stack& stack, const Arguments& arguments) {
  if (mixes_types(arguments)) return false;
  std::vector<c10::IValue> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) given.push_back(arguments[i]);
  allocate_results(op, stack, arguments);
  const at::Tensor result = stack.back().toTensor();
  allocate_workspace(workspace_of_matmul(op, Arguments(op, given), result));
  return true;
}

/// Allocates the result of oneDNN's matmul of rows and a layer's weights, which has no shape function.
inline bool allocate_linear(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor x = arguments.tensor("X");
  auto sizes = x.sizes().vec();
  sizes.back() = arguments.tensor("W").size(0);
  arguments.return_results(at::empty(sizes, x.options()).zero_());
  return true;
}

}  // namespace looptorch::detail::shapes
