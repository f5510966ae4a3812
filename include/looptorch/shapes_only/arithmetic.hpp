// SPDX-License-Identifier: MIT
// Replaces the kernels of element-wise arithmetic and reductions with ones that compute nothing: they
// allocate the results, and the copies that the real kernels would make. LibTorch's functions for the meta
// device give the results' shapes.
#pragma once

#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/workspace.hpp>

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace looptorch::detail::shapes {

/// Calls `f` with the tensors of arguments that LibTorch's iterators convert to a common type: all but
/// numbers.
template <class F>
void visit_typed(const Arguments& arguments, F&& f) {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.dim() > 0) f(i, tensor);
    });
}

[[nodiscard]] inline bool mixes_types(const Arguments& arguments) {
  std::optional<at::ScalarType> type;
  bool mixed = false;
  visit_typed(arguments, [&](std::size_t, const at::Tensor& tensor) {
    mixed |= type && *type != tensor.scalar_type();
    type = tensor.scalar_type();
  });
  return mixed;
}

/// Returns the copies in a common type that the iterators make of other types, on a CPU.
[[nodiscard]] inline std::vector<at::Tensor> copies_in_common_type(const Arguments& arguments) {
  std::optional<at::ScalarType> common;
  if (!counted_run.workspaces) return {};
  visit_typed(arguments, [&](std::size_t, const at::Tensor& tensor) {
    common = common ? c10::promoteTypes(*common, tensor.scalar_type()) : tensor.scalar_type();
  });
  std::vector<at::Tensor> copies;
  visit_typed(arguments, [&](std::size_t, const at::Tensor& tensor) {
    if (tensor.scalar_type() != *common) copies.push_back(tensor.to(*common));
  });
  return copies;
}

/// Returns zeros of the same shape, layout and type, without the dispatcher, which takes longer.
[[nodiscard]] inline at::Tensor zeros_of_shape(const at::Tensor& shape) {
  const RealBlocksScope blocks(steers_kernels(shape.scalar_type()));
  at::Tensor zeros(at::detail::empty_strided_cpu(shape.sizes(), shape.strides(), shape.scalar_type()));
  const std::size_t bytes = zeros.storage().nbytes();
  if (bytes > 0 && bytes < VirtualBlocks::kLeast) std::memset(zeros.storage().mutable_data(), 0, bytes);
  return zeros;
}

/// Allocates the results that LibTorch's shape functions describe.
inline bool allocate_results(const c10::OperatorHandle& op, Stack& stack, const Arguments& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    replace_tensors(arguments[i], [](const at::Tensor& tensor) {
      return at::Tensor(
          at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
    });
    if (arguments[i].isDevice()) arguments[i] = c10::Device(c10::kMeta);
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Fake);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  }
  for (std::size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i)
    replace_tensors(stack[i], zeros_of_shape);
  return true;
}

/// Allocates results if all types are equal; else the real kernel runs.
inline bool allocate_results_of_one_type(const c10::OperatorHandle& op, Stack& stack,
                                         const Arguments& arguments) {
  return !mixes_types(arguments) && allocate_results(op, stack, arguments);
}

/// True if a CPU copies terms of 16 bits to fp32: for means, and for sums over two or more dimensions that
/// are not adjacent in memory.
[[nodiscard]] inline bool is_reduced_in_fp32(const c10::OperatorHandle& op, const at::Tensor& terms,
                                             const at::Tensor& result, const c10::IValue& dimensions,
                                             bool keepdim) {
  if (op.schema().name() == "aten::mean") return true;
  const auto dims = dimensions.isNone() ? std::vector<std::int64_t>() : dimensions.toIntVector();
  const auto iterator =
      at::meta::make_reduction_from_out_ty(terms, result, dims, keepdim, result.scalar_type());
  if (iterator.ndim() < 2) return false;
  const auto strides = iterator.strides(/*of the result*/ 0);
  return strides[0] == 0 && strides[1] == 0;
}

/// Allocates a sum or mean, and a copy of its terms beside the result. LibTorch copies terms to the result's
/// type, such as masks to integers. But an accelerator's kernels read terms of 16 bits as fp32, without a
/// copy, and a CPU may copy terms of 16 bits to fp32.
inline bool allocate_reduction(const c10::OperatorHandle& op, Stack& stack, const Arguments& arguments) {
  const at::Tensor terms = arguments.tensor("self");
  const bool is_narrow = at::isReducedFloatingType(terms.scalar_type()), on_cpu = counted_run.workspaces;
  const c10::IValue dimensions = arguments.named("dim");
  const bool keepdim = arguments.named("keepdim").toBool();
  allocate_results(op, stack, arguments);
  const at::Tensor result = stack.back().toTensor();
  at::ScalarType type = result.scalar_type();
  if (on_cpu && at::isReducedFloatingType(type) && is_reduced_in_fp32(op, terms, result, dimensions, keepdim))
    type = at::kFloat;
  if (type == terms.scalar_type() || (!on_cpu && is_narrow && type == at::kFloat)) return true;
  const at::Tensor copy = at::empty(terms.sizes(), terms.options().dtype(type));
  const at::Tensor wide = type == result.scalar_type() ? at::Tensor() : at::empty_like(result, type);
  for (const at::Tensor& block : {result, copy})
    VirtualBlocks::installed().count_on_device(block.storage().data_ptr(), block.storage().nbytes());
  return true;
}

/// Allocates results of arithmetic on two tensors, and copies in a common type if theirs differ.
inline bool allocate_results_of_mixed_types(const c10::OperatorHandle& op, Stack& stack,
                                            const Arguments& arguments) {
  const auto copies = copies_in_common_type(arguments);
  return allocate_results(op, stack, arguments);
}

/// Returns the arguments that the operator would change in place, as they are.
inline bool return_self(const c10::OperatorHandle& op, Stack& stack, const Arguments& arguments) {
  torch::jit::drop(stack, arguments.size() - op.schema().returns().size());
  return true;
}

/// Returns true if a tensor is compared with itself; all others count as different.
inline bool compare(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor one = arguments.tensor("self"), other = arguments.tensor("other");
  arguments.return_results(one.is_set_to(other) && one.scalar_type() == other.scalar_type());
  return true;
}

/// Returns the argument `out` as it is.
inline bool return_out(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  arguments.return_results(arguments.tensor("out"));
  return true;
}

/// Does what return_self does, and allocates copies in a common type if two tensors' types differ.
inline bool return_self_of_mixed_types(const c10::OperatorHandle& op, Stack& stack,
                                       const Arguments& arguments) {
  const auto copies = copies_in_common_type(arguments);
  const at::Tensor self = arguments.tensor("self");
  const bool is_cast = !copies.empty() && copies.front().scalar_type() != self.scalar_type();
  const at::Tensor result = is_cast ? at::zeros_like(copies.front()) : at::Tensor();
  return return_self(op, stack, arguments);
}

}  // namespace looptorch::detail::shapes
