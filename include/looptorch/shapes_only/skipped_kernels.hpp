// SPDX-License-Identifier: MIT
// Lists the kernels of LibTorch's CPU backend that ShapesOnly replaces. A replacement allocates its results
// and its copies of inputs as the real kernel does, and computes nothing. Other kernels run as they are.
#pragma once

#include <looptorch/shapes_only/accelerator_kernels.hpp>
#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/arithmetic.hpp>
#include <looptorch/shapes_only/convolution.hpp>
#include <looptorch/shapes_only/layers.hpp>
#include <looptorch/shapes_only/matmul.hpp>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <initializer_list>
#include <unordered_map>

namespace looptorch::detail::shapes {

/// Replaces the arguments on the stack by results. Returns false, with the stack unchanged, to run the real
/// kernel.
using SkippedKernel = bool (*)(const c10::OperatorHandle&, Stack&, const Arguments&);

/// Returns the replacement for an operator's kernel, or null.
[[nodiscard]] inline SkippedKernel skipped_kernel(const c10::OperatorName& name) {
  static const std::unordered_map<c10::OperatorName, SkippedKernel> kernels = [] {
    std::unordered_map<c10::OperatorName, SkippedKernel> by_name{
        {{"aten::_scaled_dot_product_flash_attention_for_cpu", ""}, &allocate_attention},
        {{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", ""}, &allocate_attention_backward},
        {{"aten::native_layer_norm", ""}, &allocate_layer_norm},
        {{"aten::native_layer_norm_backward", ""}, &allocate_layer_norm_backward},
        {{"aten::native_group_norm", ""}, &allocate_group_norm},
        {{"aten::native_group_norm_backward", ""}, &allocate_group_norm_backward},
        {{"aten::convolution", ""}, &allocate_convolution},
        {{"aten::convolution_backward", ""}, &allocate_convolution_backward},
        {{"aten::max_pool2d_with_indices", ""}, &allocate_max_pool},
        {{"aten::binary_cross_entropy", ""}, &allocate_cross_entropy},
        {{"aten::multinomial", ""}, &allocate_choices},
        {{"aten::equal", ""}, &compare},
        {{"aten::native_dropout", ""}, &allocate_dropout},
        {{"aten::native_dropout_backward", ""}, &allocate_dropout_backward}};
    const auto add = [&](SkippedKernel kernel, const char* overload,
                         std::initializer_list<const char*> names) {
      for (const char* op : names) by_name.emplace(c10::OperatorName(op, overload), kernel);
    };
    add(&allocate_results_of_one_type, "",
        {"aten::gelu",
         "aten::gelu_backward",
         "aten::silu",
         "aten::silu_backward",
         "aten::clamp_min",
         "aten::threshold_backward",
         "aten::leaky_relu",
         "aten::leaky_relu_backward",
         "aten::glu",
         "aten::_log_softmax",
         "aten::_log_softmax_backward_data",
         "aten::clone",
         "aten::cat",
         "aten::neg",
         "aten::sqrt",
         "aten::rsqrt",
         "aten::reciprocal",
         "aten::sigmoid",
         "aten::sigmoid_backward",
         "aten::amax",
         "aten::linalg_vector_norm",
         "aten::upsample_bilinear2d",
         "aten::upsample_bilinear2d_backward",
         "aten::topk",
         "aten::_linalg_solve_ex",
         "aten::linalg_inv_ex",
         "aten::linalg_cholesky_ex",
         "aten::linalg_lu_factor_ex"});
    add(&allocate_matmul, "", {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"});
    add(&allocate_linear, "", {"mkldnn::_linear_pointwise"});
    add(&allocate_results, "", {"aten::_to_copy", "aten::linalg_lu_solve"});
    add(&allocate_results_of_one_type, "stable", {"aten::sort"});
    add(&allocate_reduction, "dim_IntList", {"aten::sum"});
    add(&allocate_reduction, "dim", {"aten::mean"});
    add(&allocate_results_of_one_type, "Tensor_Scalar", {"aten::pow"});
    add(&allocate_results_of_mixed_types, "Tensor", {"aten::add", "aten::sub", "aten::mul", "aten::div"});
    add(&return_self, "",
        {"aten::copy_", "aten::zero_", "aten::uniform_", "aten::normal_", "aten::exp_", "aten::addmm_",
         "aten::round_", "aten::clamp_", "aten::_fused_adamw_", "aten::_fused_adam_",
         "aten::_amp_foreach_non_finite_check_and_unscale_"});
    add(&return_out, "out", {"aten::mm"});
    add(&return_self, "Scalar", {"aten::fill_", "aten::masked_fill_"});
    add(&return_self_of_mixed_types, "Tensor", {"aten::add_", "aten::mul_", "aten::div_", "aten::sub_"});
    add(&return_self, "Tensor", {"aten::bernoulli_"});
    add(&return_self, "float", {"aten::bernoulli_"});
    return by_name;
  }();
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second;
}

}  // namespace looptorch::detail::shapes
