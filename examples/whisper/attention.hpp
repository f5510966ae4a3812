// SPDX-License-Identifier: MIT
// Multi-head attention on at::scaled_dot_product_attention, the part that Whisper's encoder and decoder
// share. Parameter names are those of Hugging Face transformers, so that its weights load by name. Memory
// grows with the sequence length, not with its square: the fused kernels never hold the matrix of attention
// weights. A layer that is recomputed keeps attention's result, which is slow to compute and small.
//
// Shapes: B batch, T queries, S keys and values, D width of the model, H heads.
#pragma once

#include <looptorch/memory/keep.hpp>
#include <looptorch/memory/key_value_cache.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <string_view>

namespace whisper {

using looptorch::KeyValues;

enum class Mask { none, causal };

namespace detail {

using OneDnnProduct = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                 std::string_view, c10::List<std::optional<at::Scalar>>,
                                 std::optional<std::string_view>);

[[nodiscard]] inline bool is_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

/// Returns oneDNN's product of fp32 tensors for AMD's processors, for which MKL, which at::linear calls, has
/// slow kernels: oneDNN's take half the time from some rows on. Nothing on other processors, and with a
/// LibTorch that has no such operator.
inline const std::optional<c10::TypedOperatorHandle<OneDnnProduct>>& onednn_product() {
  static const auto product = []() -> std::optional<c10::TypedOperatorHandle<OneDnnProduct>> {
    if (!is_amd() || !at::globalContext().hasMKLDNN()) return std::nullopt;
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!found) return std::nullopt;
    try {
      return found->typed<OneDnnProduct>();
    } catch (const c10::Error&) {  // its arguments are others
      return std::nullopt;
    }
  }();
  return product;
}

/// True where oneDNN's product is the faster one. It has no gradient.
inline bool prefers_onednn(const at::Tensor& x) {
  constexpr int64_t kRowsAtLeast = 4;
  return !at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(at::kCPU) && x.device().is_cpu() &&
         x.scalar_type() == at::kFloat && x.numel() >= kRowsAtLeast * x.size(-1) &&
         at::globalContext().userEnabledMkldnn() && onednn_product();
}

inline at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return onednn_product()->call(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, "none",
                                c10::List<std::optional<at::Scalar>>(), "");
}

}  // namespace detail

/// Applies a layer, with its bias in the product itself, where torch::nn::Linear adds it in another pass.
inline at::Tensor linear(const torch::nn::Linear& layer, const at::Tensor& x) {
  if (detail::prefers_onednn(x)) return detail::onednn_linear(x, layer->weight, layer->bias);
  return at::linear(x, layer->weight, layer->bias);
}

/// Does the same. A Checkpointed layer in CheckpointMode::light keeps the result.
inline at::Tensor kept_linear(const torch::nn::Linear& layer, const at::Tensor& x) {
  return looptorch::keep_product(linear, layer, x);
}

/// Attention with biased query, value and output projections and, as Whisper has it, a key projection without
/// bias.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int64_t width, int64_t heads) : heads_(heads) {
    TORCH_CHECK(heads > 0 && width % heads == 0, "attention: ", heads, " heads do not divide a width of ",
                width);
    k_proj = register_module("k_proj", torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false)));
    v_proj = register_module("v_proj", torch::nn::Linear(width, width));
    q_proj = register_module("q_proj", torch::nn::Linear(width, width));
    out_proj = register_module("out_proj", torch::nn::Linear(width, width));
  }

  /// Projects `source_BSD` to what queries attend to.
  [[nodiscard]] KeyValues project(const at::Tensor& source_BSD) {
    return {split_heads(kept_linear(k_proj, source_BSD)), split_heads(kept_linear(v_proj, source_BSD))};
  }

  /// Attends from `queries_BTD`; returns `[B, T, D]`. Mask::causal hides position s > t from query t and
  /// needs S = T.
  [[nodiscard]] at::Tensor forward(const at::Tensor& queries_BTD, const KeyValues& source,
                                   Mask mask = Mask::none) {
    const auto attend = [mask](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                              mask == Mask::causal);
    };
    auto heads_BHTd =
        looptorch::keep(attend, split_heads(kept_linear(q_proj, queries_BTD)), source.keys, source.values);
    return kept_linear(out_proj, heads_BHTd.transpose(1, 2).flatten(2));
  }

  /// Returns how strongly each head attends from `queries_BTD` to each key, before softmax: `[B, H, T, S]`.
  [[nodiscard]] at::Tensor scores(const at::Tensor& queries_BTD, const at::Tensor& keys_BHSd) {
    const auto scale = 1 / std::sqrt(static_cast<double>(keys_BHSd.size(3)));
    return at::matmul(split_heads(linear(q_proj, queries_BTD)) * scale, keys_BHSd.transpose(2, 3));
  }

 private:
  [[nodiscard]] at::Tensor split_heads(const at::Tensor& x_BTD) const {
    return x_BTD.unflatten(-1, {heads_, x_BTD.size(-1) / heads_}).transpose(1, 2);
  }

  int64_t heads_;
  torch::nn::Linear k_proj{nullptr}, v_proj{nullptr}, q_proj{nullptr}, out_proj{nullptr};
};
TORCH_MODULE(Attention);

}  // namespace whisper
