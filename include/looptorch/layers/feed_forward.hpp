// SPDX-License-Identifier: MIT
// A Transformer's feed-forward layer, x + down(gelu(up(norm(x)))), as one node of autograd in place of five,
// or a Conformer's, with SiLU, dropout and a factor, in place of eight. Results, gradients and random draws
// have the layers' bits; if x is used again after the layer, its gradient is summed in another order. In a
// block of CheckpointMode::light the node saves x and the first product, and computes norm and activation
// again in backward.
//
// Shapes: D width of the model, F width between the products.
#pragma once

#include <looptorch/layers/dropout_part.hpp>
#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/norm_part.hpp>
#include <looptorch/memory/keep.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace looptorch {

enum class Activation { gelu, silu };

/// The activation of a feed-forward layer, its dropout, and the factor of its branch.
struct FeedForwardOptions {
  Activation activation = Activation::gelu;
  double dropout = 0;  ///< rate, after the activation and after the second product; 0 outside of training
  double scale = 1;    ///< of what is added to x
};

namespace detail {

[[nodiscard]] inline at::Tensor activate(const at::Tensor& x, Activation activation) {
  return activation == Activation::gelu ? at::gelu(x) : at::silu(x);
}
/// Returns the gradient of x; `again` if it is differentiated again, as silu_backward cannot be.
[[nodiscard]] inline at::Tensor activation_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                                    Activation activation, bool again) {
  if (activation == Activation::gelu) return at::gelu_backward(gradient, x);
  if (!again) return at::silu_backward(gradient, x);
  const at::Tensor sigmoid = at::sigmoid(x);
  return gradient * sigmoid * (1 + x * (1 - sigmoid));
}

class FeedForwardBackward final : public torch::autograd::Node {
 public:
  using Tensors = torch::autograd::variable_list;
  struct Layer {
    at::Tensor weight, bias;  ///< The bias may be undefined.

    [[nodiscard]] bool learns() const {
      return weight.requires_grad() || (bias.defined() && bias.requires_grad());
    }
  };

  /// Returns the layer's result for an x that `takes_norm` and layers that `takes_layer` accept.
  static at::Tensor result(const at::Tensor& x, const NormParameters& norm, const Layer& up,
                           const Layer& down, const FeedForwardOptions& options) {
    const auto node = made_node<FeedForwardBackward>();
    node->options_ = options;
    for (DropoutPart& drop : node->drops_) drop = DropoutPart(options.dropout);
    node->set_next_edges(torch::autograd::collect_next_edges(
        x, norm.weight, norm.bias, up.weight, list_of(up.bias), down.weight, list_of(down.bias)));
    at::Tensor y = node->run(x, norm, up, down);
    torch::autograd::set_history(y, node);
    return y;
  }

  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    auto norm = norm_.unpack();  // first: may rerun a block, with its own gradients
    const auto of_up = up_.unpack(), of_down = down_.unpack();
    const at::Tensor up_bias = up_bias_.unpack();
    at::Tensor rows = rows_.unpack(), hidden = hidden_.unpack(), activated = activated_.unpack();
    std::array kept{drops_[0].unpack(), drops_[1].unpack()};
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::optional<at::AutoDispatchBelowADInplaceOrView> no_views;
    const bool again = at::GradMode::is_enabled();  // the results are differentiated again
    if (!again) no_views.emplace();
    const std::size_t first_up = 3, first_down = first_up + up_.parameters();
    Tensors result(first_down + down_.parameters());
    if (!gradients[0].defined()) return result;
    const auto is_needed = [this](std::size_t i) { return task_should_compute_output(i); };
    const auto any_before = [&](std::size_t end) {
      for (std::size_t i = 0; i < end; ++i)
        if (is_needed(i)) return true;
      return false;
    };
    const auto normed_rows = [&] { return as(norm_.again(norm), up_.type()).view({-1, up_.width()}); };
    const auto activated_rows = [&] {
      return drops_[0].again(activate(hidden, options_.activation), kept[0]);
    };
    if (again && !of_up.weights.empty())
      rows = normed_rows(), hidden = up_.again(of_up, up_bias, rows), activated = activated_rows();
    at::Tensor of_y = gradients[0];
    if (options_.scale != 1) of_y = of_y * options_.scale;
    of_y = drops_[1].gradient(as(of_y, down_.type()).reshape({-1, down_.outputs()}), kept[1], again);
    kept[1].reset();
    down_.of_parameters(
        result, first_down, of_y, [&] { return activated.defined() ? activated : activated_rows(); },
        is_needed);
    activated.reset();
    if (any_before(first_down)) {
      at::Tensor of_hidden = down_.of_rows(of_down, of_y, again);  // in steps, each of which frees the last
      of_y.reset();
      of_hidden = drops_[0].gradient(of_hidden, kept[0], again);
      kept[0].reset();
      of_hidden = activation_gradient(of_hidden, hidden, options_.activation, again);
      hidden.reset();
      up_.of_parameters(
          result, first_up, of_hidden, [&] { return rows.defined() ? rows : normed_rows(); }, is_needed);
      if (any_before(first_up))
        std::tie(result[0], result[1], result[2]) = NormPart::gradients(
            norm, up_.of_rows(of_up, of_hidden, again), {is_needed(0), is_needed(1), is_needed(2)});
    }
    if (is_needed(0)) result[0] = result[0] + as(gradients[0], result[0].scalar_type());
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    norm_.release(), up_.release(), down_.release();
    for (auto* saved : {&up_bias_, &rows_, &hidden_, &activated_}) saved->reset_data();
    for (auto& drop : drops_) drop.release();
  }

  std::string name() const override { return "FeedForwardBackward"; }

 private:
  at::Tensor run(const at::Tensor& x, const NormParameters& norm, const Layer& up, const Layer& down) {
    const SavingMode mode;
    const HeldScope held(mode);
    const auto type = product_type(x);
    const bool norm_learns = x.requires_grad() || norm.learns();
    norm_.save(x, norm);
    up_.save(up.weight, list_of(up.bias), type, norm_learns || up.learns());  // for a second derivative
    if (up.bias.defined()) up_bias_ = saved_parameter(up.bias);
    down_.save(down.weight, list_of(down.bias), type, norm_learns || up.learns());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor rows = as(norm_.forward(x, norm), type).view({-1, up_.width()});
    if (!mode.is_light && up.weight.requires_grad()) rows_ = {rows, /*is_output=*/false};
    const at::Tensor hidden = up_.forward(rows, up.weight, list_of(up.bias));
    hidden_ = {hidden, /*is_output=*/false};
    const at::Tensor activated = drops_[0].forward(activate(hidden, options_.activation));
    if (!mode.is_light && down.weight.requires_grad()) activated_ = {activated, /*is_output=*/false};
    const at::Tensor branch = drops_[1].forward(down_.forward(activated, down.weight, list_of(down.bias)));
    return at::add(x, branch.view(x.sizes()), options_.scale);
  }

  FeedForwardOptions options_;
  std::array<DropoutPart, 2> drops_;
  NormPart norm_;
  RowProduct up_, down_;
  torch::autograd::SavedVariable up_bias_, rows_, hidden_, activated_;
};

}  // namespace detail

/// Returns `x + scale * drop(down(drop(activation(up(norm(x))))))` for x of `[..., D]`. `norm` is a holder of
/// a torch::nn::LayerNorm over D; `up` and `down` hold torch::nn::Linear, D to F and F to D, or modules
/// derived from it that compute the same. Calls the layers one by one where they have adapters, without
/// gradients, and with dropout in a block of CheckpointMode::light, which must draw the same numbers twice.
template <class Norm, class Up, class Down>
[[nodiscard]] at::Tensor feed_forward(const at::Tensor& x, Norm norm, Up up, Down down,
                                      const FeedForwardOptions& options = {}) {
  const bool is_drawn_again = options.dropout > 0 && detail::in_light_block();
  if (detail::is_plain(up) && detail::is_plain(down) && options.dropout < 1 && !is_drawn_again) {
    const auto parameters = detail::NormParameters::of(norm);
    detail::FeedForwardBackward::Layer first{up->weight, up->bias}, second{down->weight, down->bias};
    if (detail::takes_norm(x, parameters) && detail::takes_layer(x, x.size(-1), first.weight, first.bias) &&
        detail::takes_layer(x, first.weight.size(0), second.weight, second.bias) &&
        second.weight.size(0) == x.size(-1) &&
        (x.requires_grad() || parameters.learns() || first.learns() || second.learns()))
      return detail::FeedForwardBackward::result(x, parameters, first, second, options);
  }
  const auto widen = [&up](const at::Tensor& normed) { return up->forward(normed); };
  const auto drop = [rate = options.dropout](const at::Tensor& y) {
    return rate == 0 ? y : at::dropout(y, rate, /*train=*/true);
  };
  const at::Tensor hidden = keep_product(widen, norm->forward(x));
  const at::Tensor branch = drop(down->forward(drop(detail::activate(hidden, options.activation))));
  return at::add(x, branch, options.scale);
}

}  // namespace looptorch
