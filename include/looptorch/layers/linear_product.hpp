// SPDX-License-Identifier: MIT
// Linear layers as one node of autograd. at::linear makes up to four: views of input and output, a
// transposition and the product; attention's heads are two more. A node takes more of a small model's time
// than its arithmetic. The kernels are at::linear's, so one layer has its bits, gradients too.
//
// Shapes: B batch, T positions, H heads of d numbers, K inputs of each layer, N outputs of all layers.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/split.h>
#include <ATen/ops/split_with_sizes.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// How heads lie in a product's input and outputs.
struct HeadLayout {
  std::int64_t split = 0;  ///< H if outputs are `[B, H, T, d]`, all of one size; 0: `[..., N]`.
  bool is_merged = false;  ///< The input is `[B, H, T, d]`, and K = H d.
};

/// Returns `x` as `[rows, K]`.
[[nodiscard]] inline at::Tensor rows_of(const at::Tensor& x, bool by_heads, std::int64_t width) {
  return (by_heads ? x.transpose(1, 2) : x).reshape({-1, width});
}

/// Returns the tensor in a type: a call less than `to` if it has that.
[[nodiscard]] inline at::Tensor as(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.scalar_type() == type ? tensor : tensor.to(type);
}

/// Returns the layers' rows, `[N, K]`, or biases, `[N]`, in a type.
[[nodiscard]] inline at::Tensor joined(at::TensorList parts, at::ScalarType type) {
  return as(parts.size() == 1 ? parts[0] : at::cat(parts), type);
}

/// Returns a new node of autograd. Newer versions of LibTorch count references within the node.
template <class Node>
[[nodiscard]] auto made_node() {
  if constexpr (std::derived_from<Node, c10::intrusive_ptr_target>)
    return c10::make_intrusive<Node>();
  else
    return std::shared_ptr<Node>(new Node, [](Node* node) { deleteNode(node); });
}

/// x W^T + b by layers, and its gradients.
class LinearBackward final : public torch::autograd::Node {
 public:
  using Tensors = torch::autograd::variable_list;

  /// Returns each layer's output. `x` has the type of the product; the parameters may have another. There is
  /// a bias for each weight, or none.
  static Tensors product(const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                         const HeadLayout& heads) {
    const auto node = made_node<LinearBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(x, weights, biases));
    Tensors outputs = node->run(x, weights, biases, heads);
    torch::autograd::set_history(outputs, node);
    return outputs;
  }

  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    Tensors weights;  // unpacked first: may rerun a block, with its own gradients
    for (const auto& weight : weights_) weights.push_back(weight.unpack());
    const at::Tensor x = x_.unpack(), cast = cast_NK_.unpack();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::optional<at::AutoDispatchBelowADInplaceOrView> no_views;
    const bool again = at::GradMode::is_enabled();  // the results are differentiated again
    if (!again) no_views.emplace();
    const std::size_t layers = rows_.size();
    Tensors result(1 + layers + bias_count_);
    const at::Tensor gradient = joined_gradient(gradients);
    if (!gradient.defined()) return result;
    if (task_should_compute_output(0)) {
      const at::Tensor weight_NK = cast.defined() && !again ? cast : joined(weights, gradient.scalar_type());
      const at::Tensor of_x = at::mm(gradient, weight_NK);
      result[0] = input_heads_ > 0 ? of_x.view({sizes_[0], sizes_[2], input_heads_, -1}).transpose(1, 2)
                                   : of_x.view(sizes_);
    }
    const auto hand_out = [&](std::size_t first, auto&& make) {
      bool any = false;
      for (std::size_t i = 0; i < layers; ++i) any |= task_should_compute_output(first + i);
      if (!any) return;
      const at::Tensor made = as(make(), parameter_type_);
      if (layers == 1) return void(result[first] = made);
      const auto parts = at::split_with_sizes(made, rows_, 0);
      for (std::size_t i = 0; i < layers; ++i)
        if (task_should_compute_output(first + i)) result[first + i] = parts[i];
    };
    hand_out(1, [&] { return at::mm(gradient.t(), rows_of(x, input_heads_ > 0, width_)); });
    if (bias_count_ > 0) hand_out(1 + layers, [&] { return gradient.sum(0); });
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    x_.reset_data(), cast_NK_.reset_data();
    for (auto& weight : weights_) weight.reset_data();
  }

  std::string name() const override { return "LinearBackward"; }

 private:
  Tensors run(const at::Tensor& x, at::TensorList weights, at::TensorList biases, const HeadLayout& heads) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto type = x.scalar_type();
    parameter_type_ = weights[0].scalar_type();
    bias_count_ = biases.size(), sizes_ = x.sizes().vec(), input_heads_ = heads.is_merged ? x.size(1) : 0;
    width_ = weights[0].size(1);
    std::int64_t outputs = 0;
    for (const at::Tensor& weight : weights) rows_.push_back(weight.size(0)), outputs += rows_.back();
    if (x.requires_grad())
      for (const at::Tensor& weight : weights) weights_.emplace_back(weight, /*is_output=*/false);
    if (weights[0].requires_grad()) x_ = {x, /*is_output=*/false};
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor weight_NK = joined(weights, type), rows = rows_of(x, heads.is_merged, width_);
    if (x.requires_grad() && type != parameter_type_) cast_NK_ = {weight_NK, /*is_output=*/false};
    const at::Tensor y =
        biases.empty() ? at::mm(rows, weight_NK.t()) : at::addmm(joined(biases, type), rows, weight_NK.t());
    auto sizes = heads.is_merged ? std::vector<std::int64_t>{x.size(0), x.size(2), 0} : sizes_;
    sizes.back() = outputs;
    if (heads.split == 0)
      return rows_.size() == 1 ? Tensors{y.view(sizes)} : at::split_with_sizes(y.view(sizes), rows_, -1);
    head_width_ = rows_[0] / heads.split;
    const at::Tensor all = y.view({sizes[0], sizes[1], -1, head_width_}).transpose(1, 2);
    return rows_.size() == 1 ? Tensors{all} : at::split(all, heads.split, 1);
  }

  /// Returns the gradient of all outputs, `[rows, N]`; undefined if none has one.
  [[nodiscard]] at::Tensor joined_gradient(Tensors& gradients) const {
    const bool by_heads = head_width_ > 0;
    std::int64_t outputs = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      outputs += rows_[i];
      if (gradients[i].defined() && by_heads) gradients[i] = gradients[i].transpose(1, 2);
    }
    if (gradients.size() == 1)
      return gradients[0].defined() ? gradients[0].reshape({-1, outputs}) : at::Tensor();
    bool any = false;
    for (const at::Tensor& gradient : gradients) any |= gradient.defined();
    if (!any) return {};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) continue;
      gradients[i] = input_metadata(i).zeros_like();
      if (by_heads) gradients[i] = gradients[i].transpose(1, 2);
    }
    return at::cat(gradients, by_heads ? 2 : -1).reshape({-1, outputs});
  }

  torch::autograd::SavedVariable x_, cast_NK_;
  std::vector<torch::autograd::SavedVariable> weights_;
  std::vector<std::int64_t> rows_, sizes_;  ///< Outputs of each layer, and the input's shape.
  std::size_t bias_count_ = 0;
  std::int64_t width_ = 0, head_width_ = 0, input_heads_ = 0;
  at::ScalarType parameter_type_ = at::kFloat;
};

/// True if a graph of autograd can have a node of ours on this input.
[[nodiscard]] inline bool takes_node(const at::Tensor& input) {
  return at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled() && input.layout() == at::kStrided &&
         !input.is_nested();
}
/// True for a tensor whose derivative is computed forward, which a node of ours would drop.
[[nodiscard]] inline bool has_tangent(const at::Tensor& tensor) {
  return tensor._fw_grad(/*level=*/0).defined();
}

/// Returns one layer's output by one node of autograd; undefined where at::linear must compute it.
[[nodiscard]] inline at::Tensor one_product(const at::Tensor& input, const at::Tensor& weight,
                                            const at::Tensor& bias, const HeadLayout& heads = {}) {
  if (!takes_node(input) || !weight.defined() || weight.dim() != 2) return {};
  if (heads.is_merged
          ? input.dim() != 4 || input.size(1) * input.size(3) != weight.size(1)
          : input.size(-1) != weight.size(1) || input.dim() < 2 || input.dim() > 3 || !input.is_contiguous())
    return {};
  if (heads.split > 0 && (input.dim() != 3 || weight.size(0) % heads.split != 0)) return {};
  const auto none_learns = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return !x.requires_grad() && !w.requires_grad() && !(b.defined() && b.requires_grad());
  };
  if (none_learns(input, weight, bias)) return {};
  at::Tensor x = input, w = weight, b = bias;
  const auto device = input.device().type();
  if (at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device)) {
    const auto type = at::autocast::get_autocast_dtype(device);
    x = at::autocast::cached_cast(type, x, device), w = at::autocast::cached_cast(type, w, device);
    if (b.defined()) b = at::autocast::cached_cast(type, b, device);
  }
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.device() == x.device() && tensor.scalar_type() == x.scalar_type() &&
           tensor.layout() == at::kStrided && !has_tangent(tensor);
  };
  if (none_learns(x, w, b)) return {};  // autocast keeps casts that were made without gradients, too
  if (!at::isFloatingType(x.scalar_type()) || x.numel() == 0 || w.numel() == 0 || !fits(x) || !fits(w) ||
      (b.defined() && (!fits(b) || b.dim() != 1 || b.size(0) != w.size(0))))
    return {};
  return LinearBackward::product(x, w, b.defined() ? at::TensorList(b) : at::TensorList(), heads).front();
}

}  // namespace looptorch::detail

namespace looptorch {

/// Returns at::linear's result, by one node of autograd where that is possible. `bias` may be undefined.
[[nodiscard]] inline at::Tensor linear_product(const at::Tensor& input, const at::Tensor& weight,
                                               const at::Tensor& bias) {
  at::Tensor output = detail::one_product(input, weight, bias);
  return output.defined() ? output : at::linear(input, weight, bias);
}

}  // namespace looptorch
