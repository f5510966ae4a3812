// SPDX-License-Identifier: MIT
// Registers autocast for the simulated accelerator, from the lists of operators that LibTorch has for CUDA.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {  // whose names the macros use

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOOPTORCH_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LOOPTORCH_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LOOPTORCH_SET_TYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define LOOPTORCH_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOOPTORCH_LOWER)
  AT_FORALL_FP32(LOOPTORCH_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOOPTORCH_SET_TYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(LOOPTORCH_PROMOTE)
}

}  // namespace at::autocast
