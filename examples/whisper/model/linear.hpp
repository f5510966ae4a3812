// SPDX-License-Identifier: MIT
// The linear layers of Whisper, which choose the fastest matmul that gives the same numbers up to rounding:
// by a 16-bit copy of the weights if it loses nothing (half_weights.hpp), by oneDNN on AMD's processors, or
// else by LibTorch.
#pragma once

#include <looptorch/adapters/lora.hpp>
#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/linear_node.hpp>
#include <looptorch/memory/keep.hpp>

#include "half_weights.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <array>
#include <optional>
#include <string_view>

namespace whisper {

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

/// Returns oneDNN's fp32 matmul on AMD's processors. There at::linear calls MKL, whose kernels are slow;
/// oneDNN's take half the time from some rows on. Returns nothing on other processors, and with a LibTorch
/// that lacks the operator.
inline const std::optional<c10::TypedOperatorHandle<OneDnnProduct>>& onednn_product() {
  static const auto product = []() -> std::optional<c10::TypedOperatorHandle<OneDnnProduct>> {
    if (!is_amd() || !at::globalContext().hasMKLDNN()) return std::nullopt;
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!found) return std::nullopt;
    try {
      return found->typed<OneDnnProduct>();
    } catch (const c10::Error&) {  // another release's arguments
      return std::nullopt;
    }
  }();
  return product;
}

/// True if oneDNN's matmul is faster. False where gradients are needed, which it lacks.
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

/// Returns `x` times a weight plus a bias, which may be undefined. `half` may hold the weight in 16 bits.
inline at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          const std::optional<HalfWeights>& half) {
  const bool autocasts = at::autocast::is_autocast_enabled(at::kCPU);
  if (half && !autocasts && half->serves(x, weight)) return (*half)(x);
  if (prefers_onednn(x)) return onednn_linear(x, weight, bias);
  return looptorch::linear_node(x, weight, bias);
}

}  // namespace detail

/// A torch::nn::Linear that uses the fastest matmul and adds the bias within it, without another pass. Can
/// also hold its weight in 16 bits.
class PlainProjectionImpl : public torch::nn::LinearImpl {
 public:
  using LinearImpl::LinearImpl;

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) { return detail::product(x, weight, bias, half_); }

  /// Packs the weight. Has no effect if HalfWeights cannot hold it.
  void hold_half_weights() { half_ = HalfWeights::pack(weight, bias); }

  [[nodiscard]] const std::optional<HalfWeights>& half_weights() const { return half_; }

 private:
  std::optional<HalfWeights> half_;
};
TORCH_MODULE(PlainProjection);

/// A PlainProjection with room for an adapter.
using Projection = looptorch::Lora<PlainProjection>;

/// Applies a layer, with its adapter if it has one.
inline at::Tensor linear(Projection layer, const at::Tensor& x) { return layer->forward(x); }

/// Applies layers to one input, by one matmul if that is faster. Returns heads `[B, H, T, d]`, which
/// CheckpointMode::light keeps for backward.
template <class... Layers>
std::array<at::Tensor, sizeof...(Layers)> kept_heads(const at::Tensor& x, int64_t heads,
                                                     const Layers&... layers) {
  return looptorch::keep_product(looptorch::joint_heads<Layers...>, x, heads, layers...);
}

}  // namespace whisper
