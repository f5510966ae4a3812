// SPDX-License-Identifier: MIT
// Computes linear layers of one input as one node of autograd. at::linear makes up to four nodes: views of
// input and output, a transposition and the matmul; splitting the output into attention's heads makes two
// more. In a small model a node costs more than its arithmetic. The kernels are at::linear's, so the output
// and gradients of a single layer equal at::linear's bit for bit.
//
// Shapes: B batch, T positions, H heads of d numbers, K inputs of each layer, N outputs of all layers.
#pragma once

#include <looptorch/base/device/matmul_type.hpp>
#include <looptorch/layers/row_matmul.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// How heads lie in a matmul's input and outputs.
struct HeadLayout {
  std::int64_t split = 0;  ///< H if outputs are `[B, H, T, d]`, all of one size; 0: `[..., N]`.
  bool is_merged = false;  ///< The input is `[B, H, T, d]`, and K = H d.
  at::Tensor residual{};   ///< Added to one layer's output, `[..., N]`, if it is defined.
};

/// The backward node of x W^T + b for several layers of one input; `outputs` makes it.
class LinearBackward final : public torch::autograd::Node {
 public:
  using Tensors = torch::autograd::variable_list;

  /// Returns each layer's output. The matmul has `type`; x and the parameters may have others. There is a
  /// bias for each weight, or none.
  static Tensors outputs(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                         const HeadLayout& heads, at::ScalarType type) {
    const auto node = made_node<LinearBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(x, weights, biases, list_of(heads.residual)));
    Tensors outputs = node->run(x, weights, biases, heads, type);
    torch::autograd::set_history(outputs, node);
    return outputs;
  }

  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    const auto saved = matmul_.unpack();  // first: may rerun a block, with its own gradients
    const at::Tensor x = x_.unpack();
    const BackwardScope scope;
    Tensors result(residual_at() + (residual_type_ ? 1 : 0));
    if (residual_type_ && gradients[0].defined()) {
      if (task_should_compute_output(residual_at()))
        result[residual_at()] = as(gradients[0], *residual_type_);
      gradients[0] = as(gradients[0], matmul_.type());
    }
    const at::Tensor gradient = layout_.join(gradients, 0, gradients.size(), matmul_.outputs(), *this);
    if (!gradient.defined()) return result;
    if (task_should_compute_output(0))
      result[0] = as_input(matmul_.grad_rows(saved, gradient, scope.create_graph));
    matmul_.grad_parameters(
        result, 1, gradient, [&] { return rows_of(x, input_heads_ > 0, matmul_.width()); },
        [&](std::size_t i) {
          return task_should_compute_output(i) && gradients[(i - 1) % gradients.size()].defined();
        });
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    x_.reset_data(), matmul_.release();
  }

  std::string name() const override { return "LinearBackward"; }

 private:
  /// Returns the index of the residual among the node's inputs: after x, weights and biases.
  [[nodiscard]] std::size_t residual_at() const { return 1 + matmul_.parameters(); }
  /// Returns rows in the input's layout and type.
  [[nodiscard]] at::Tensor as_input(const at::Tensor& rows) const {
    if (input_heads_ == 0) return as(rows.view(sizes_), input_type_);
    return as(rows.view({sizes_[0], sizes_[2], input_heads_, -1}).transpose(1, 2), input_type_);
  }

  Tensors run(const at::Tensor& input, at::TensorList weights, at::TensorList biases, const HeadLayout& heads,
              at::ScalarType type) {
    sizes_ = input.sizes().vec(), input_heads_ = heads.is_merged ? input.size(1) : 0;
    input_type_ = input.scalar_type();
    matmul_.save(weights, biases, type, input.requires_grad());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor x = as(input, type);  // with a history, for a second derivative
    if (weights[0].requires_grad()) x_ = {x, /*is_output=*/false};
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor y = matmul_.forward(rows_of(x, heads.is_merged, matmul_.width()), weights, biases);
    const auto sizes = heads.is_merged ? std::vector<std::int64_t>{x.size(0), x.size(2), 0} : sizes_;
    Tensors outputs = layout_.split(y, sizes, matmul_.outputs_per_layer(), heads.split);
    if (heads.residual.defined()) {
      residual_type_ = heads.residual.scalar_type();
      outputs[0] = heads.residual + outputs[0];
    }
    return outputs;
  }

  torch::autograd::SavedVariable x_;
  RowMatmul matmul_;
  OutputLayout layout_;
  std::vector<std::int64_t> sizes_;  ///< The input's shape.
  std::int64_t input_heads_ = 0;
  at::ScalarType input_type_ = at::kFloat;
  std::optional<at::ScalarType> residual_type_;  ///< Empty if there is none.
};

/// True if one of looptorch's nodes can take this input in autograd's graph.
[[nodiscard]] inline bool takes_node(const at::Tensor& input) {
  return at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled() && input.layout() == at::kStrided &&
         !input.is_nested();
}
/// True for a tensor with a forward-mode derivative, which looptorch's nodes would drop.
[[nodiscard]] inline bool has_tangent(const at::Tensor& tensor) {
  return tensor._fw_grad(/*level=*/0).defined();
}

/// True if a parameter has the matmul's `type`, or autocast casts it to `type`. If autocast cached this cast
/// in a forward without gradients, replaces the parameter by the cast: it gets no gradient, as in at::linear.
[[nodiscard]] inline bool is_castable(at::Tensor& parameter, at::ScalarType type) {
  if (parameter.scalar_type() == type) return true;
  const auto device = parameter.device().type();
  if (type == at::kDouble || !at::autocast::is_autocast_available(device) ||
      !at::autocast::is_autocast_enabled(device))
    return false;
  const at::Tensor cast = at::autocast::cached_cast(type, parameter, device);
  if (cast.scalar_type() != type) return false;
  if (!cast.requires_grad()) parameter = cast;
  return true;
}

/// True for a tensor that a node on `input` can read.
[[nodiscard]] inline bool fits_device(const at::Tensor& tensor, const at::Tensor& input) {
  return tensor.device() == input.device() && tensor.layout() == at::kStrided && !has_tangent(tensor);
}
/// True for an input whose rows, or merged heads, are as wide as the weight and lie without gaps.
[[nodiscard]] inline bool fits_weight(const at::Tensor& input, const at::Tensor& weight,
                                      const HeadLayout& heads) {
  if (!weight.defined() || weight.dim() != 2 || weight.numel() == 0) return false;
  if (heads.is_merged) return input.dim() == 4 && input.size(1) * input.size(3) == weight.size(1);
  return (input.dim() == 2 || input.dim() == 3) && input.size(-1) == weight.size(1) && input.is_contiguous();
}
/// True for heads that the output divides into, and a residual of the output's sizes.
[[nodiscard]] inline bool fits_output(const at::Tensor& input, const at::Tensor& weight,
                                      const HeadLayout& heads) {
  if (heads.split > 0 && (input.dim() != 3 || weight.size(0) % heads.split != 0)) return false;
  const at::Tensor& residual = heads.residual;
  return !residual.defined() ||
         (fits_device(residual, input) && residual.dim() == 3 && residual.size(0) == input.size(0) &&
          residual.size(1) == input.size(heads.is_merged ? 2 : 1) && residual.size(2) == weight.size(0));
}

/// Returns one layer's output by one node of autograd; undefined where at::linear must compute it.
[[nodiscard]] inline at::Tensor try_linear_node(const at::Tensor& input, const at::Tensor& weight,
                                                const at::Tensor& bias, const HeadLayout& heads = {}) {
  if (!takes_node(input) || !at::isFloatingType(input.scalar_type()) || input.numel() == 0 ||
      has_tangent(input) || !fits_weight(input, weight, heads) || !fits_output(input, weight, heads))
    return {};
  const auto type = matmul_type(input);
  at::Tensor w = weight, b = bias;
  if (!is_castable(w, type) || !fits_device(w, input)) return {};
  if (b.defined() &&
      (!is_castable(b, type) || !fits_device(b, input) || b.dim() != 1 || b.size(0) != w.size(0)))
    return {};
  if (!input.requires_grad() && !w.requires_grad() && !(b.defined() && b.requires_grad())) return {};
  return LinearBackward::outputs(input, w, list_of(b), heads, type).front();
}

}  // namespace looptorch::detail

namespace looptorch {

/// Returns at::linear's result, by one node of autograd where that is possible. `bias` may be undefined.
[[nodiscard]] inline at::Tensor linear_node(const at::Tensor& input, const at::Tensor& weight,
                                            const at::Tensor& bias) {
  at::Tensor output = detail::try_linear_node(input, weight, bias);
  return output.defined() ? output : at::linear(input, weight, bias);
}

}  // namespace looptorch
