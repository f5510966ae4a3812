// SPDX-License-Identifier: MIT
// Looks up rows of an embedding, with a cheaper backward than torch::nn::Embedding's: it adds directly to the
// looked-up rows of an existing gradient. torch::nn::Embedding makes a gradient for the whole vocabulary each
// time: 80 MB for Whisper tiny, most of it zeros.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/memory/gradient_in_place.hpp>

#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <torch/csrc/autograd/custom_function.h>

namespace looptorch {
namespace detail {

struct EmbeddingRows : torch::autograd::Function<EmbeddingRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight_VD,
                            const at::Tensor& ids) {
    context->save_for_backward({weight_VD, ids});
    return at::embedding(weight_VD, ids);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight_VD = saved[0], &ids = saved[1], &gradient = gradients[0];
    const GradientToAddTo sum(weight_VD);
    if (!sum)
      return {at::embedding_dense_backward(gradient, ids, weight_VD.size(0), /*padding_idx=*/-1,
                                           /*scale_grad_by_freq=*/false),
              {}};
    const at::Tensor rows_ND = gradient.reshape({-1, weight_VD.size(1)}).to(weight_VD.scalar_type());
    sum.update([&, ids_N = ids.flatten()](const at::Tensor& sum_VD) {
      // The order of sums is fixed for index_add_ on a CPU, and for index_put_ elsewhere, but not vice versa.
      if (computes_on_cpu(sum_VD))
        sum_VD.index_add_(0, ids_N, rows_ND);
      else
        sum_VD.index_put_({ids_N}, rows_ND, /*accumulate=*/true);
    });
    return {{}, {}};
  }
};

}  // namespace detail

/// Returns the rows `[..., D]` of `weight_VD` at `ids`, int64 `[...]`. Equals at::embedding; gradients differ
/// in the order of sums only. Adds to an existing gradient row by row, unless hooks wait for it.
[[nodiscard]] inline at::Tensor embedding_rows(const at::Tensor& weight_VD, const at::Tensor& ids) {
  if (weight_VD.dim() != 2)
    throw UsageError(message("embedding_rows takes weights of shape [V, D], got ", weight_VD.sizes()));
  return detail::EmbeddingRows::apply(weight_VD, ids);
}

}  // namespace looptorch
