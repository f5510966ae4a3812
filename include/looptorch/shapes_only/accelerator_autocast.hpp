// SPDX-License-Identifier: MIT
// Makes autocast run layer norms, softmax and the like in fp32, as on an accelerator, when ShapesOnly
// simulates one with CPU tensors. On a CPU, autocast leaves these operators in 16 bits, so that autograd
// saves half as many bytes for them.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/shapes_only/arguments.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>
#include <string>
#include <utility>

namespace looptorch::detail::shapes {

/// How an operator gets to fp32: by casts of its inputs, or by its argument `dtype`.
enum class ToFp32 { inputs, dtype };

/// Runs an operator under autocast as on an accelerator.
template <ToFp32 kBy>
void run_in_fp32(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (!cpu_stands_for_accelerator) {
    const c10::DispatchKeySet after(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::AutocastCPU);
    return op.redispatchBoxed(keys & after, stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const Arguments arguments(op, *stack);
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if constexpr (kBy == ToFp32::inputs)
      replace_tensors(arguments[i], [](const at::Tensor& tensor) {
        return at::autocast::cached_cast(at::kFloat, tensor, c10::kCPU);
      });
    else if (arguments.name(i) == "dtype" && arguments[i].isNone() && arguments[0].isTensor() &&
             arguments[0].toTensor().is_floating_point() &&
             arguments[0].toTensor().scalar_type() != at::kDouble)
      arguments[i] = at::kFloat;
  op.callBoxed(stack);
}

/// Registers `run_in_fp32`, from the first call on, for the operators that autocast runs in fp32 on CUDA and
/// leaves alone on a CPU.
inline void register_fp32_operators() {
  static torch::Library library = [] {
    torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCPU, __FILE__, __LINE__);
    const auto add = [&](torch::CppFunction function, const char* name, const char* overload = "") {
      const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
      if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) return;
      aten.impl(c10::toString(op->operator_name()).c_str(), std::move(function));
    };
    // LibTorch lists these operators in macros, as (layer_norm) or, with an overload, as (norm, Scalar). The
    // first becomes: add(makeFromBoxedFunction<&run_in_fp32<ToFp32::inputs>>(), "layer_norm");
#define LOOPTORCH_NAMES_1(op) #op
#define LOOPTORCH_NAMES_2(op, overload) #op, #overload
#define LOOPTORCH_NAMES(_1, _2, name, ...) name
#define LOOPTORCH_ADD(by, ...)                                               \
  add(torch::CppFunction::makeFromBoxedFunction<&run_in_fp32<ToFp32::by>>(), \
      LOOPTORCH_NAMES(__VA_ARGS__, LOOPTORCH_NAMES_2, LOOPTORCH_NAMES_1)(__VA_ARGS__));
#define LOOPTORCH_ADD_BY_INPUTS(...) LOOPTORCH_ADD(inputs, __VA_ARGS__)
#define LOOPTORCH_ADD_BY_DTYPE(...) LOOPTORCH_ADD(dtype, __VA_ARGS__)
    AT_FORALL_FP32(LOOPTORCH_ADD_BY_INPUTS)
    AT_FORALL_FP32_SET_OPT_DTYPE(LOOPTORCH_ADD_BY_DTYPE)
#undef LOOPTORCH_ADD_BY_DTYPE
#undef LOOPTORCH_ADD_BY_INPUTS
#undef LOOPTORCH_ADD
#undef LOOPTORCH_NAMES
#undef LOOPTORCH_NAMES_2
#undef LOOPTORCH_NAMES_1
    return aten;
  }();
}

}  // namespace looptorch::detail::shapes
