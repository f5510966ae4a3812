// SPDX-License-Identifier: MIT
// Computes a Transformer's feed-forward layer, x + down(gelu(up(norm(x)))), as one node of autograd instead
// of five. A Conformer's layer, which has SiLU, dropout and a factor, is also one node, instead of eight. In
// a block of CheckpointMode::light the node saves x and the first matmul's result, and computes norm and
// activation again in backward. Results, gradients and random numbers equal those of the separate layers bit
// for bit. The one exception is the gradient of an x that is used again after the layer: it is summed in
// another order.
//
// Shapes: D width of the model, F width between the matmuls.
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
#include <string>
#include <utility>

namespace looptorch {

/// The function between the two matmuls: GELU by the error function, as at::gelu's default, or SiLU (Swish).
enum class Activation { gelu, silu };

/// The activation of a feed-forward layer, its dropout, and the factor of its branch.
struct FeedForwardOptions {
  Activation activation = Activation::gelu;
  double dropout = 0;  ///< rate, after the activation and after the second matmul; 0 outside of training
  double scale = 1;    ///< factor of the branch that is added to x
};

namespace detail {

[[nodiscard]] inline at::Tensor activate(const at::Tensor& x, Activation activation) {
  return activation == Activation::gelu ? at::gelu(x) : at::silu(x);
}
/// Returns the gradient of x. With `create_graph`, it can be differentiated again; silu_backward cannot.
[[nodiscard]] inline at::Tensor activation_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                                    Activation activation, bool create_graph) {
  if (activation == Activation::gelu) return at::gelu_backward(gradient, x);
  if (!create_graph) return at::silu_backward(gradient, x);
  const at::Tensor sigmoid = at::sigmoid(x);
  return gradient * sigmoid * (1 + x * (1 - sigmoid));
}

/// The backward node of `feed_forward`; `result` makes it and runs its forward pass. Throws, as LibTorch's
/// nodes do, if it is differentiated after its saved tensors were released.
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

  /// Frees each saved tensor right after its last use, so that only one gradient of the inner width is held.
  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    Saved saved = unpack();  // first: may rerun a block, with its own gradients
    const BackwardScope scope;
    Tensors result(first_of_down() + down_.parameters());
    if (!gradients[0].defined()) return result;
    if (scope.create_graph && !saved.up.weights.empty()) {
      saved.rows = normed_rows(saved);
      saved.hidden = up_.again(saved.up, saved.up_bias, saved.rows);
      saved.activated = activated_again(saved);
    }
    at::Tensor grad_activated = down_gradients(result, gradients[0], saved, scope.create_graph);
    if (grad_activated.defined()) {
      const at::Tensor grad_rows = up_gradients(result, std::move(grad_activated), saved, scope.create_graph);
      if (grad_rows.defined())
        std::tie(result[0], result[1], result[2]) =
            NormPart::gradients(saved.norm, grad_rows, {needs(0), needs(1), needs(2)});
    }
    if (needs(0)) result[0] = result[0] + as(gradients[0], result[0].scalar_type());
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
  static constexpr std::size_t kFirstOfUp = 3;  ///< after x and the norm's weight and bias

  struct Saved {
    NormPart::Unpacked norm;
    RowMatmul::Unpacked up, down;
    at::Tensor up_bias, rows, hidden, activated;
    std::array<at::Tensor, 2> kept;  ///< what each dropout kept
  };
  [[nodiscard]] Saved unpack() const {
    return {norm_.unpack(), up_.unpack(),     down_.unpack(),      up_bias_.unpack(),
            rows_.unpack(), hidden_.unpack(), activated_.unpack(), {drops_[0].unpack(), drops_[1].unpack()}};
  }

  [[nodiscard]] std::size_t first_of_down() const { return kFirstOfUp + up_.parameters(); }
  [[nodiscard]] bool needs(std::size_t i) const { return task_should_compute_output(i); }
  [[nodiscard]] bool needs_any_before(std::size_t end) const {
    for (std::size_t i = 0; i < end; ++i)
      if (needs(i)) return true;
    return false;
  }

  [[nodiscard]] at::Tensor normed_rows(Saved& saved) const {
    return as(norm_.again(saved.norm), up_.type()).view({-1, up_.width()});
  }
  [[nodiscard]] at::Tensor activated_again(const Saved& saved) const {
    return drops_[0].again(activate(saved.hidden, options_.activation), saved.kept[0]);
  }

  /// Sets the gradients of the second layer's parameters. Returns the gradient of the layer's input;
  /// undefined if nothing before the layer needs it.
  [[nodiscard]] at::Tensor down_gradients(Tensors& result, const at::Tensor& of_result, Saved& saved,
                                          bool create_graph) const {
    at::Tensor gradient = options_.scale == 1 ? of_result : of_result * options_.scale;
    gradient = drops_[1].gradient(as(gradient, down_.type()).reshape({-1, down_.outputs()}), saved.kept[1],
                                  create_graph);
    saved.kept[1].reset();
    down_.grad_parameters(
        result, first_of_down(), gradient,
        [&] { return saved.activated.defined() ? saved.activated : activated_again(saved); },
        [this](std::size_t i) { return needs(i); });
    saved.activated.reset();
    return needs_any_before(first_of_down()) ? down_.grad_rows(saved.down, gradient, create_graph)
                                             : at::Tensor();
  }

  /// Does for the first layer what `down_gradients` does. `gradient` is the gradient of the dropout's result.
  [[nodiscard]] at::Tensor up_gradients(Tensors& result, at::Tensor gradient, Saved& saved,
                                        bool create_graph) const {
    gradient = drops_[0].gradient(gradient, saved.kept[0], create_graph);
    saved.kept[0].reset();
    gradient = activation_gradient(gradient, saved.hidden, options_.activation, create_graph);
    saved.hidden.reset();
    up_.grad_parameters(
        result, kFirstOfUp, gradient, [&] { return saved.rows.defined() ? saved.rows : normed_rows(saved); },
        [this](std::size_t i) { return needs(i); });
    return needs_any_before(kFirstOfUp) ? up_.grad_rows(saved.up, gradient, create_graph) : at::Tensor();
  }

  at::Tensor run(const at::Tensor& x, const NormParameters& norm, const Layer& up, const Layer& down) {
    const SavingMode mode;
    const HeldScope held(mode);
    const auto type = matmul_type(x);
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
  RowMatmul up_, down_;
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
  if (detail::has_no_adapter(up) && detail::has_no_adapter(down) && options.dropout < 1 && !is_drawn_again) {
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
