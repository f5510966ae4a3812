// SPDX-License-Identifier: MIT
// Computes linear layers of one input as one matmul, forward and backward, for the autograd nodes in
// linear_node.hpp, norm_heads.hpp and feed_forward.hpp. Also splits the result by layer and head.
//
// Shapes: K inputs of each layer, N outputs of all layers.
#pragma once

#include <looptorch/memory/recompute/recomputation.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/split.h>
#include <ATen/ops/split_with_sizes.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns `x` as `[rows, K]`.
[[nodiscard]] inline at::Tensor rows_of(const at::Tensor& x, bool by_heads, std::int64_t width) {
  return (by_heads ? x.transpose(1, 2) : x).reshape({-1, width});
}

/// Returns the tensor in `type`. Does not call `to` if the tensor has that type already.
[[nodiscard]] inline at::Tensor as(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.scalar_type() == type ? tensor : tensor.to(type);
}

/// Returns the layers' rows, `[N, K]`, or biases, `[N]`, in a type.
[[nodiscard]] inline at::Tensor joined(at::TensorList parts, at::ScalarType type) {
  return as(parts.size() == 1 ? parts[0] : at::cat(parts), type);
}

/// Returns a list of the tensor, or none if it is undefined.
[[nodiscard]] inline at::TensorList list_of(const at::Tensor& tensor) {
  return tensor.defined() ? at::TensorList(tensor) : at::TensorList();
}

/// Saves a parameter the plain way, even inside a checkpointed block: the block's keeper would do the same,
/// only slower.
[[nodiscard]] inline torch::autograd::SavedVariable saved_parameter(const at::Tensor& parameter) {
  std::optional<KeeperScope> plain;
  if (is_trained_leaf(parameter)) plain.emplace(nullptr);
  return {parameter, /*is_output=*/false};
}

/// Returns a new node of autograd. Newer versions of LibTorch count references within the node.
template <class Node>
[[nodiscard]] auto made_node() {
  if constexpr (std::derived_from<Node, c10::intrusive_ptr_target>)
    return c10::make_intrusive<Node>();
  else
    return std::shared_ptr<Node>(new Node, [](Node* node) { deleteNode(node); });
}

/// Runs the kernels of a node's backward pass: not under autocast, and below autograd unless the gradients
/// are differentiated again.
class BackwardScope {
 public:
  BackwardScope() {
    if (!create_graph) no_views_.emplace();
  }

  const bool create_graph = at::GradMode::is_enabled();  ///< True for a second derivative.

 private:
  const c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
  std::optional<at::AutoDispatchBelowADInplaceOrView> no_views_;
};

/// x W^T + b on rows for layers of one input, as a part of a node: one matmul, and one for each gradient.
class RowMatmul {
 public:
  using Tensors = torch::autograd::variable_list;

  /// Saves what the gradient of x needs, if `x_learns`. `type` is that of the matmul. There is a bias for
  /// each weight, or none.
  void save(at::TensorList weights, at::TensorList biases, at::ScalarType type, bool x_learns) {
    weight_type_ = weights[0].scalar_type(), type_ = type;
    if ((bias_count_ = biases.size()) > 0) bias_type_ = biases[0].scalar_type();
    for (const at::Tensor& weight : weights)
      outputs_per_layer_.push_back(weight.size(0)), outputs_ += outputs_per_layer_.back();
    width_ = weights[0].size(1);
    if (x_learns)
      for (const at::Tensor& weight : weights) weights_.push_back(saved_parameter(weight));
    if (weights.size() > 1) return;
    const auto cast = [&](const at::Tensor& parameter) {  // autocast keeps the casts of a window
      return at::autocast::cached_cast(type, parameter, parameter.device().type());
    };
    if (type != weight_type_) weight_NK_ = cast(weights[0]);
    if (bias_count_ > 0 && type != bias_type_) bias_N_ = cast(biases[0]);
  }
  /// Returns `[rows, N]`. Called once, after `save`, below autograd.
  [[nodiscard]] at::Tensor forward(const at::Tensor& rows, at::TensorList weights, at::TensorList biases) {
    if (!weight_NK_.defined()) weight_NK_ = joined(weights, type_);
    if (!bias_N_.defined() && bias_count_ > 0) bias_N_ = joined(biases, type_);
    const at::Tensor weight_NK = std::move(weight_NK_), bias_N = std::move(bias_N_);
    if (!weights_.empty() && type_ != weight_type_) cast_NK_ = {weight_NK, /*is_output=*/false};
    return bias_count_ == 0 ? at::mm(rows, weight_NK.t()) : at::addmm(bias_N, rows, weight_NK.t());
  }

  /// The saved tensors of one backward.
  struct Unpacked {
    Tensors weights;
    at::Tensor cast_NK;
  };
  [[nodiscard]] Unpacked unpack() const {
    Unpacked unpacked{{}, cast_NK_.unpack()};
    for (const auto& weight : weights_) unpacked.weights.push_back(weight.unpack());
    return unpacked;
  }
  /// Returns the gradient of x; `create_graph` if it is differentiated again.
  [[nodiscard]] at::Tensor grad_rows(const Unpacked& saved, const at::Tensor& gradient,
                                     bool create_graph) const {
    return at::mm(gradient,
                  saved.cast_NK.defined() && !create_graph ? saved.cast_NK : joined(saved.weights, type_));
  }
  /// Returns the result of a single layer's matmul, computed again to be differentiated. The bias may be
  /// undefined.
  [[nodiscard]] at::Tensor again(const Unpacked& saved, const at::Tensor& bias,
                                 const at::Tensor& rows) const {
    const at::Tensor weight_KN = joined(saved.weights, type_).t();
    return bias.defined() ? at::addmm(as(bias, type_), rows, weight_KN) : at::mm(rows, weight_KN);
  }
  /// Sets the weights' gradients in `result` from `first` on, and then the biases', as far as `is_needed(i)`:
  /// a layer whose output no loss uses needs none.
  template <class Rows, class IsNeeded>
  void grad_parameters(Tensors& result, std::size_t first, const at::Tensor& gradient, const Rows& rows,
                       const IsNeeded& is_needed) const {
    const std::size_t layers = outputs_per_layer_.size();
    const auto hand_out = [&](std::size_t from, at::ScalarType type, auto&& make) {
      bool any = false;
      for (std::size_t i = 0; i < layers; ++i) any |= is_needed(from + i);
      if (!any) return;
      const at::Tensor made = as(make(), type);
      if (layers == 1) return void(result[from] = made);
      const auto parts = at::split_with_sizes(made, outputs_per_layer_, 0);
      for (std::size_t i = 0; i < layers; ++i)
        if (is_needed(from + i)) result[from + i] = parts[i];
    };
    hand_out(first, weight_type_, [&] { return at::mm(gradient.t(), rows()); });
    if (bias_count_ > 0) hand_out(first + layers, bias_type_, [&] { return gradient.sum(0); });
  }

  void release() {
    cast_NK_.reset_data();
    for (auto& weight : weights_) weight.reset_data();
  }

  [[nodiscard]] const std::vector<std::int64_t>& outputs_per_layer() const { return outputs_per_layer_; }
  [[nodiscard]] std::int64_t outputs() const { return outputs_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] at::ScalarType type() const { return type_; }
  [[nodiscard]] std::size_t parameters() const { return outputs_per_layer_.size() + bias_count_; }

 private:
  torch::autograd::SavedVariable cast_NK_;
  std::vector<torch::autograd::SavedVariable> weights_;
  at::Tensor weight_NK_, bias_N_;  ///< Between `save` and `forward`.
  std::vector<std::int64_t> outputs_per_layer_;
  std::int64_t outputs_ = 0, width_ = 0;
  std::size_t bias_count_ = 0;
  at::ScalarType weight_type_ = at::kFloat, bias_type_ = at::kFloat, type_ = at::kFloat;
};

/// Splits a matmul's result, `[rows, N]`, into layers' outputs, and joins their gradients.
class OutputLayout {
 public:
  using Tensors = torch::autograd::variable_list;

  /// Returns each layer's output. `sizes` are those of the input as `[..., K]`.
  [[nodiscard]] Tensors split(const at::Tensor& y, std::vector<std::int64_t> sizes,
                              const std::vector<std::int64_t>& outputs_per_layer, std::int64_t heads) {
    sizes.back() = y.size(1);
    if (heads == 0)
      return outputs_per_layer.size() == 1 ? Tensors{y.view(sizes)}
                                           : at::split_with_sizes(y.view(sizes), outputs_per_layer, -1);
    by_heads_ = true;
    const at::Tensor all = y.view({sizes[0], sizes[1], -1, outputs_per_layer[0] / heads}).transpose(1, 2);
    return outputs_per_layer.size() == 1 ? Tensors{all} : at::split(all, heads, 1);
  }

  /// Returns the gradient of `layers` outputs from `first` on, `[rows, N]`; undefined if none has one.
  [[nodiscard]] at::Tensor join(const Tensors& gradients, std::size_t first, std::size_t layers,
                                std::int64_t outputs, const torch::autograd::Node& node) const {
    c10::SmallVector<at::Tensor, 4> own(gradients.data() + first, gradients.data() + first + layers);
    bool any = false;
    for (at::Tensor& gradient : own) {
      any |= gradient.defined();
      if (gradient.defined() && by_heads_) gradient = gradient.transpose(1, 2);
    }
    if (!any) return {};
    if (layers == 1) return own[0].reshape({-1, outputs});
    for (std::size_t i = 0; i < layers; ++i) {
      if (own[i].defined()) continue;
      own[i] = node.input_metadata(first + i).zeros_like();
      if (by_heads_) own[i] = own[i].transpose(1, 2);
    }
    return at::cat(at::TensorList(own), by_heads_ ? 2 : -1).reshape({-1, outputs});
  }

 private:
  bool by_heads_ = false;
};

}  // namespace looptorch::detail
