// SPDX-License-Identifier: MIT
// Multi-head attention on at::scaled_dot_product_attention, plain or with relative positions. A mask shared
// by all layers hides padding. Attention weights have no dropout: LibTorch's fused kernel for CPUs does not
// support it.
//
// Shapes: B batch, T queries, S keys and values, D width of the model, H heads, d = D/H, P = 2T - 1
// distances.
#pragma once

#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/linear.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/memory/key_value_cache.hpp>

#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace konkanivani {

using looptorch::KeyValues, looptorch::QueriesKeyValues;

/// Attention with biased projections. A mask is bool (true: visible) or a bias to the scores, and broadcasts
/// to `[B, H, T, S]`; each query must see a key.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int64_t width, int64_t heads) : heads_(heads) {
    q_proj = register_module("q_proj", looptorch::Linear(width, width));
    k_proj = register_module("k_proj", looptorch::Linear(width, width));
    v_proj = register_module("v_proj", looptorch::Linear(width, width));
    out_proj = register_module("out_proj", looptorch::Linear(width, width));
  }

  /// Projects `source_BSD` to keys and values.
  [[nodiscard]] KeyValues project(const at::Tensor& source_BSD) {
    const auto [keys_BHSd, values_BHSd] = looptorch::joint_heads(source_BSD, heads_, k_proj, v_proj);
    return {keys_BHSd, values_BHSd};
  }

  /// Projects `x_BTD` for self-attention.
  [[nodiscard]] QueriesKeyValues project_all(const at::Tensor& x_BTD) {
    const auto [queries_BHTd, keys_BHTd, values_BHTd] =
        looptorch::joint_heads(x_BTD, heads_, q_proj, k_proj, v_proj);
    return {queries_BHTd, {keys_BHTd, values_BHTd}};
  }

  /// Attends from `queries_BTD` to `source`; returns `[B, T, D]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& queries_BTD, const KeyValues& source,
                                   const at::Tensor& mask) {
    return attend(looptorch::joint_heads(queries_BTD, heads_, q_proj)[0], source, mask);
  }

  /// Attends from projected queries; returns `[B, T, D]`. A recomputed block keeps attention's result, which
  /// is slow to compute and small.
  [[nodiscard]] at::Tensor attend(const at::Tensor& queries_BHTd, const KeyValues& source,
                                  const at::Tensor& mask) {
    const auto attention = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& m) {
      return m.defined() ? at::scaled_dot_product_attention(q, k, v, m)
                         : at::scaled_dot_product_attention(q, k, v);
    };
    const auto heads_BHTd = looptorch::keep(attention, queries_BHTd, source.keys, source.values, mask);
    return looptorch::merge_heads(heads_BHTd, out_proj);
  }

 protected:
  int64_t heads_;
  looptorch::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
};
TORCH_MODULE(Attention);

namespace detail {

/// Converts `[B, H, T, P]` by distance, from T - 1 down, to `[B, H, T, T]` by key: entry (i, j) gets the
/// score of distance i - j (Dai et al. 2019).
inline at::Tensor by_key(const at::Tensor& scores_BHTP) {
  const auto length = scores_BHTP.size(2);
  const auto padded = at::constant_pad_nd(scores_BHTP, {1, 0});
  const auto shifted = padded.flatten(2).narrow(2, length, length * (2 * length - 1));
  return shifted.unflatten(2, {length, 2 * length - 1}).narrow(3, 0, length);
}

}  // namespace detail

/// Self-attention whose scores also depend on the distance of a key from the query, as in Transformer-XL and
/// the Conformer. Holds all scores by distance: `[B, H, T, T]`.
class RelativeAttentionImpl : public AttentionImpl {
 public:
  RelativeAttentionImpl(int64_t width, int64_t heads) : AttentionImpl(width, heads) {
    pos_proj =
        register_module("pos_proj", looptorch::Linear(torch::nn::LinearOptions(width, width).bias(false)));
    content_bias = register_parameter("content_bias", at::zeros({heads, 1, width / heads}));
    distance_bias = register_parameter("distance_bias", at::zeros({heads, 1, width / heads}));
  }

  /// Takes `visible_B11T` as bool, and `distances_PD`, the table of `distance_table`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BTD, const at::Tensor& visible_B11T,
                                   const at::Tensor& distances_PD) {
    const auto [queries_BHTd, source] = project_all(x_BTD);
    const auto table_HPd = looptorch::split_heads(pos_proj(distances_PD).unsqueeze(0), heads_).squeeze(0);
    const auto by_distance =
        at::matmul(queries_BHTd + distance_bias.to(queries_BHTd.scalar_type()), table_HPd.transpose(1, 2));
    const auto scale = 1 / std::sqrt(static_cast<double>(queries_BHTd.size(3)));
    const auto bias_BHTT =
        (detail::by_key(by_distance) * scale)
            .masked_fill(visible_B11T.logical_not(), -std::numeric_limits<double>::infinity());
    return attend(queries_BHTd + content_bias.to(queries_BHTd.scalar_type()), source, bias_BHTT);
  }

 private:
  looptorch::Linear pos_proj{nullptr};
  at::Tensor content_bias, distance_bias;
};
TORCH_MODULE(RelativeAttention);

}  // namespace konkanivani
