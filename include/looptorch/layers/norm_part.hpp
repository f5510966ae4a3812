// SPDX-License-Identifier: MIT
// Implements layer normalisation as the first step of the custom autograd nodes in norm_heads.hpp and
// feed_forward.hpp. Calls the same kernels as at::layer_norm. In a block of CheckpointMode::light these nodes
// save their input and the results of their matmuls, and normalise again in backward. So the block need not
// run a second time.
#pragma once

#include <looptorch/layers/linear_node.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

namespace looptorch::detail {

/// The parameters of a layer norm.
struct NormParameters {
  at::Tensor weight, bias;
  double eps;

  template <class Norm>
  [[nodiscard]] static NormParameters of(const Norm& norm) {
    return {norm->weight, norm->bias, norm->options.eps()};
  }
  [[nodiscard]] bool learns() const { return weight.requires_grad() || bias.requires_grad(); }
};

/// How a node saves: `is_light` if it recomputes the operations between its matmuls.
struct SavingMode {
  bool is_light = in_light_block();
};

/// While it lives, a light node's tensors are saved by autograd as usual: held, not recomputed.
class HeldScope {
 public:
  explicit HeldScope(const SavingMode& mode) {
    if (mode.is_light) plain_.emplace(nullptr);
  }

 private:
  std::optional<KeeperScope> plain_;
};

/// The layer norm of an autograd node, which holds it as a member. Saves x, the parameters and the
/// statistics, but not the result: `again` computes it from them.
class NormPart {
 public:
  /// Saves what backward needs besides the statistics.
  void save(const at::Tensor& x, const NormParameters& norm) {
    x_ = {x, /*is_output=*/false};
    weight_ = saved_parameter(norm.weight), bias_ = saved_parameter(norm.bias);
    eps_ = norm.eps;
  }
  /// Returns the normalised x. Called once, after `save`, below autograd.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const NormParameters& norm) {
    auto [normed, mean, rstd] = at::native_layer_norm(x, x.sizes().back(), norm.weight, norm.bias, eps_);
    mean_ = {mean, /*is_output=*/false}, rstd_ = {rstd, /*is_output=*/false};
    return normed;
  }

  /// The saved tensors of one backward.
  struct Unpacked {
    at::Tensor x, weight, bias, mean, rstd;
  };
  [[nodiscard]] Unpacked unpack() const {
    return {x_.unpack(), weight_.unpack(), bias_.unpack(), mean_.unpack(), rstd_.unpack()};
  }
  /// Returns the normalised x again.
  [[nodiscard]] at::Tensor again(Unpacked& saved) const {
    auto [normed, mean, rstd] =
        at::native_layer_norm(saved.x, saved.x.sizes().back(), saved.weight, saved.bias, eps_);
    saved.mean = mean, saved.rstd = rstd;
    return normed;
  }
  /// Returns the gradients of x, weight and bias, as far as they are asked for.
  [[nodiscard]] static std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(
      const Unpacked& saved, const at::Tensor& gradient_rows, std::array<bool, 3> asked) {
    const at::Tensor gradient = as(gradient_rows, saved.x.scalar_type()).view(saved.x.sizes());
    return at::native_layer_norm_backward(gradient, saved.x, saved.x.sizes().back(), saved.mean, saved.rstd,
                                          saved.weight, saved.bias, asked);
  }

  void release() {
    for (auto* saved : {&x_, &weight_, &bias_, &mean_, &rstd_}) saved->reset_data();
  }

 private:
  torch::autograd::SavedVariable x_, weight_, bias_, mean_, rstd_;
  double eps_ = 0;
};

/// True if a node can begin with this norm of x: one type and device, and fp32 where autocast casts.
[[nodiscard]] inline bool takes_norm(const at::Tensor& x, const NormParameters& norm) {
  if (!takes_node(x) || x.dim() < 2 || x.numel() == 0 || !x.is_contiguous() || has_tangent(x)) return false;
  const auto type = x.scalar_type();
  if (!at::isFloatingType(type) || (matmul_type(x) != type && type != at::kFloat)) return false;
  for (const at::Tensor* parameter : {&norm.weight, &norm.bias})
    if (!parameter->defined() || parameter->dim() != 1 || parameter->size(0) != x.size(-1) ||
        parameter->scalar_type() != type || parameter->device() != x.device() || has_tangent(*parameter))
      return false;
  return true;
}

/// True if a node can compute the matmul of rows of `width` and a layer's parameters. Replaces parameters by
/// the casts that autocast has cached in a forward without gradients, as `is_castable` does.
[[nodiscard]] inline bool takes_layer(const at::Tensor& x, std::int64_t width, at::Tensor& weight,
                                      at::Tensor& bias) {
  const auto fits = [&](at::Tensor& tensor) {
    return fits_device(tensor, x) && at::isFloatingType(tensor.scalar_type()) &&
           is_castable(tensor, matmul_type(x));
  };
  return weight.defined() && weight.dim() == 2 && weight.size(1) == width && weight.numel() > 0 &&
         fits(weight) &&
         (!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0) && fits(bias)));
}

}  // namespace looptorch::detail
