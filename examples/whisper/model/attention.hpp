// SPDX-License-Identifier: MIT
// Multi-head attention on at::scaled_dot_product_attention, shared by Whisper's encoder and decoder.
// Parameters have the names of Hugging Face transformers, so that its weights load by name. Memory grows
// linearly with the sequence length: the fused kernels never hold the matrix of attention weights. A layer
// that is recomputed in backward keeps attention's result, which is slow to compute and small.
//
// Shapes: B batch, T queries, S keys and values, D width of the model, H heads, d = D / H.
#pragma once

#include <looptorch/layers/norm_heads.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/memory/key_value_cache.hpp>

#include "linear.hpp"

#include <torch/torch.h>

#include <cmath>
#include <optional>

namespace whisper {

using looptorch::KeyValues, looptorch::QueriesKeyValues;

/// Which keys a query sees: all keys, or with `is_causal` (as many keys as queries) those up to its own
/// position, or those for which `added`, `[S]`, is 0 rather than minus infinity.
struct Mask {
  bool is_causal = false;
  at::Tensor added{};
};

/// Attention with biased query, value and output projections. As in Whisper, the key projection has no bias.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int64_t width, int64_t heads) : heads_(heads) {
    TORCH_CHECK(heads > 0 && width % heads == 0, "attention: ", heads, " heads do not divide a width of ",
                width);
    k_proj = register_module("k_proj", Projection(torch::nn::LinearOptions(width, width).bias(false)));
    v_proj = register_module("v_proj", Projection(width, width));
    q_proj = register_module("q_proj", Projection(width, width));
    out_proj = register_module("out_proj", Projection(width, width));
  }

  /// Projects `source_BSD` to what queries attend to.
  [[nodiscard]] KeyValues project(const at::Tensor& source_BSD) {
    const auto [keys_BHSd, values_BHSd] = kept_heads(source_BSD, heads_, k_proj, v_proj);
    return {keys_BHSd, values_BHSd};
  }

  /// Projects the normalised `x_BTD` for self-attention.
  [[nodiscard]] QueriesKeyValues project_all(const torch::nn::LayerNorm& norm, const at::Tensor& x_BTD) {
    const auto [queries_BHTd, keys_BHTd, values_BHTd] =
        looptorch::norm_heads(x_BTD, heads_, norm, q_proj, k_proj, v_proj);
    return {queries_BHTd, {keys_BHTd, values_BHTd}};
  }

  /// Attends from the normalised `x_BTD`; returns `x_BTD` plus the result.
  [[nodiscard]] at::Tensor forward(const torch::nn::LayerNorm& norm, const at::Tensor& x_BTD,
                                   const KeyValues& source) {
    return attend(looptorch::norm_heads(x_BTD, heads_, norm, q_proj)[0], source, Mask{}, x_BTD);
  }

  /// Attends from projected queries to the keys that `mask` shows; returns `x_BTD` plus the result.
  [[nodiscard]] at::Tensor attend(const at::Tensor& queries_BHTd, const KeyValues& source, const Mask& mask,
                                  const at::Tensor& x_BTD) {
    const auto attention = [mask](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      std::optional<at::Tensor> added_11TS;
      if (mask.added.defined()) added_11TS = mask.added.expand({1, 1, q.size(2), -1});
      return at::scaled_dot_product_attention(q, k, v, added_11TS, /*dropout_p=*/0.0, mask.is_causal);
    };
    const auto heads_BHTd = looptorch::keep(attention, queries_BHTd, source.keys, source.values);
    return looptorch::keep_product(looptorch::merge_heads<Projection>, heads_BHTd, out_proj, x_BTD);
  }

  /// Returns how strongly each head attends from `queries_BTD` to each key, before softmax: `[B, H, T, S]`.
  [[nodiscard]] at::Tensor scores(const at::Tensor& queries_BTD, const at::Tensor& keys_BHSd) {
    const auto scale = 1 / std::sqrt(static_cast<double>(keys_BHSd.size(3)));
    return at::matmul(looptorch::split_heads(linear(q_proj, queries_BTD), heads_) * scale,
                      keys_BHSd.transpose(2, 3));
  }

 private:
  int64_t heads_;
  Projection k_proj{nullptr}, v_proj{nullptr}, q_proj{nullptr}, out_proj{nullptr};
};
TORCH_MODULE(Attention);

}  // namespace whisper
