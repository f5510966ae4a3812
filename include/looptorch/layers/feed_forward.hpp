// SPDX-License-Identifier: MIT
// A Transformer's feed-forward layer, x + down(gelu(up(norm(x)))), as one node of autograd in place of five.
// The kernels are those of the layers, and so are the bits, gradients too. In a block of
// CheckpointMode::light the node saves x and the first product, and computes norm and GELU again in backward.
//
// Shapes: D width of the model, F width between the products.
#pragma once

#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/norm_part.hpp>
#include <looptorch/memory/keep.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace looptorch {
namespace detail {

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
                           const Layer& down) {
    const auto node = made_node<FeedForwardBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(
        x, norm.weight, norm.bias, up.weight, list_of(up.bias), down.weight, list_of(down.bias)));
    at::Tensor y = node->run(x, norm, up, down);
    torch::autograd::set_history(y, node);
    return y;
  }

  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    mode_.rerun_block();
    auto norm = norm_.unpack();  // first: may rerun a block, with its own gradients
    const auto of_up = up_.unpack(), of_down = down_.unpack();
    const at::Tensor up_bias = up_bias_.unpack();
    at::Tensor rows = rows_.unpack(), hidden = hidden_.unpack(), activated = activated_.unpack();
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
    if (again && !of_up.weights.empty())
      rows = normed_rows(), hidden = up_.again(of_up, up_bias, rows), activated = at::gelu(hidden);
    const at::Tensor of_y = as(gradients[0], down_.type()).reshape({-1, down_.outputs()});
    down_.of_parameters(
        result, first_down, of_y, [&] { return activated.defined() ? activated : at::gelu(hidden); },
        is_needed);
    activated.reset();
    if (any_before(first_down)) {
      const at::Tensor of_hidden = at::gelu_backward(down_.of_rows(of_down, of_y, again), hidden);
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
    mode_.block.reset(), norm_.release(), up_.release(), down_.release();
    for (auto* saved : {&up_bias_, &rows_, &hidden_, &activated_}) saved->reset_data();
  }

  std::string name() const override { return "FeedForwardBackward"; }

 private:
  at::Tensor run(const at::Tensor& x, const NormParameters& norm, const Layer& up, const Layer& down) {
    mode_ = {};
    const HeldScope held(mode_);
    const auto type = product_type(x);
    const bool norm_learns = x.requires_grad() || norm.learns();
    norm_.save(x, norm);
    up_.save(up.weight, list_of(up.bias), type, norm_learns || up.learns());  // for a second derivative
    if (up.bias.defined()) up_bias_ = saved_parameter(up.bias);
    down_.save(down.weight, list_of(down.bias), type, norm_learns || up.learns());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor rows = as(norm_.forward(x, norm), type).view({-1, up_.width()});
    if (!mode_.is_light() && up.weight.requires_grad()) rows_ = {rows, /*is_output=*/false};
    const at::Tensor hidden = up_.forward(rows, up.weight, list_of(up.bias));
    hidden_ = {hidden, /*is_output=*/false};
    const at::Tensor activated = at::gelu(hidden);
    if (!mode_.is_light() && down.weight.requires_grad()) activated_ = {activated, /*is_output=*/false};
    return x + down_.forward(activated, down.weight, list_of(down.bias)).view(x.sizes());
  }

  SavingMode mode_{nullptr};
  NormPart norm_;
  RowProduct up_, down_;
  torch::autograd::SavedVariable up_bias_, rows_, hidden_, activated_;
};

}  // namespace detail

/// Returns `x + down(gelu(up(norm(x))))` for x of `[..., D]`. `norm` is a holder of a torch::nn::LayerNorm
/// over D; `up` and `down` hold torch::nn::Linear, D to F and F to D, or modules derived from it that compute
/// the same. Calls the layers one by one where they have adapters, and without gradients.
template <class Norm, class Up, class Down>
[[nodiscard]] at::Tensor feed_forward(const at::Tensor& x, Norm norm, Up up, Down down) {
  if (detail::is_plain(up) && detail::is_plain(down)) {
    const auto parameters = detail::NormParameters::of(norm);
    detail::FeedForwardBackward::Layer first{up->weight, up->bias}, second{down->weight, down->bias};
    if (detail::takes_norm(x, parameters) && detail::takes_layer(x, x.size(-1), first.weight, first.bias) &&
        detail::takes_layer(x, first.weight.size(0), second.weight, second.bias) &&
        second.weight.size(0) == x.size(-1) &&
        (x.requires_grad() || parameters.learns() || first.learns() || second.learns()))
      return detail::FeedForwardBackward::result(x, parameters, first, second);
  }
  const auto widen = [&up](const at::Tensor& normed) { return up->forward(normed); };
  return x + down->forward(at::gelu(keep_product(widen, norm->forward(x))));
}

}  // namespace looptorch
