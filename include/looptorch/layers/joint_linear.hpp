// SPDX-License-Identifier: MIT
// Computes several linear layers of one input as one product, such as the queries, keys and values of
// attention. Layers keep their names and parameters. On a small model or a GPU, saves a quarter of
// attention's host time, and half under autocast. Costs copies of the weights in forward (in fp32 also in
// backward), and a copy of the outputs' gradients. The gradients of the weights share one storage. The
// weights must not change in place between forward and backward.
//
// Shapes: K inputs of each layer, N outputs of all layers.
#pragma once

#include <looptorch/base/device/accelerator.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Returns the layers' rows, `[N, K]`, or biases, `[N]`, in a type.
[[nodiscard]] inline at::Tensor joined(at::TensorList parts, at::ScalarType type) {
  return at::cat(parts).to(type);
}

/// x W^T + b by layers. `x` has the type of the product; the parameters may have another. There is a bias for
/// each weight, or none.
struct JointProduct : torch::autograd::Function<JointProduct> {
  using Tensors = torch::autograd::variable_list;

  static Tensors forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                         at::TensorList weights, at::TensorList biases) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const auto type = x.scalar_type();
    const at::Tensor weight_NK = joined(weights, type), transposed = weight_NK.t();
    const bool is_cast = type != weights[0].scalar_type(), needs_weights = x.requires_grad();
    Tensors saved{weights[0].requires_grad() ? x : at::Tensor(),
                  needs_weights && is_cast ? weight_NK : at::Tensor()};
    if (needs_weights) saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["type"] = static_cast<std::int64_t>(weights[0].scalar_type());
    context->saved_data["biases"] = static_cast<std::int64_t>(biases.size());
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const at::Tensor y =
        biases.empty() ? at::mm(rows, transposed) : at::addmm(joined(biases, type), rows, transposed);
    auto sizes = x.sizes().vec();
    sizes.back() = y.size(1);
    return at::split_with_sizes(y.view(sizes), sizes_of(weights, 0), -1);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();  // first: may rerun a block, with its own gradients
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::optional<at::AutoDispatchBelowADInplaceOrView> no_views;
    const bool again = at::GradMode::is_enabled();  // the results are differentiated again
    if (!again) no_views.emplace();
    const at::Tensor gradient = at::cat(gradients, -1).flatten(0, -2);
    const auto biases = static_cast<std::size_t>(context->saved_data["biases"].toInt());
    Tensors result(1 + gradients.size() + biases);
    if (context->needs_input_grad(0)) {
      const bool is_kept = saved[1].defined() && !again;
      const at::Tensor weight_NK =
          is_kept ? saved[1] : joined(at::TensorList(saved).slice(2), gradient.scalar_type());
      auto sizes = gradients[0].sizes().vec();
      sizes.back() = weight_NK.size(1);
      result[0] = at::mm(gradient, weight_NK).view(sizes);
    }
    const auto hand_out = [&](std::size_t first, auto&& make) {
      bool any = false;
      for (std::size_t i = 0; i < gradients.size(); ++i) any |= context->needs_input_grad(first + i);
      if (!any) return;
      const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
      const auto parts = at::split_with_sizes(make().to(type), sizes_of(gradients, -1), 0);
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (context->needs_input_grad(first + i)) result[first + i] = parts[i];
    };
    hand_out(1, [&] { return at::mm(gradient.t(), saved[0].reshape({-1, saved[0].size(-1)})); });
    if (biases > 0) hand_out(1 + gradients.size(), [&] { return gradient.sum(0); });
    return result;
  }

 private:
  /// Returns the tensors' sizes in one dimension.
  static std::vector<std::int64_t> sizes_of(at::TensorList tensors, std::int64_t dim) {
    std::vector<std::int64_t> sizes;
    for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.size(dim));
    return sizes;
  }
};

/// Returns the type of the product: autocast's, or the input's.
[[nodiscard]] inline at::ScalarType product_type(const at::Tensor& input) {
  const auto device = input.device().type();
  const bool casts = at::autocast::is_autocast_available(device) &&
                     at::autocast::is_autocast_enabled(device) && input.scalar_type() != at::kDouble;
  return casts ? at::autocast::get_autocast_dtype(device) : input.scalar_type();
}

/// True if one product can replace the layers' own and is faster: copying a large weight takes longer than
/// the calls that it saves. An accelerator's limit is above the attention of every Whisper.
[[nodiscard]] inline bool are_joined(const at::Tensor& input, at::TensorList weights, at::TensorList biases) {
  constexpr std::int64_t kMostOnCpu = 1 << 16, kMostOnAccelerator = 1 << 23;
  if (!at::GradMode::is_enabled() || input.dim() < 2 || input.numel() == 0) return false;
  const at::Tensor& first = weights[0];
  const auto type = product_type(input), from = first.scalar_type();
  if (!first.is_floating_point() || (type == input.scalar_type() ? from != type : from == at::kDouble))
    return false;
  std::int64_t elements = 0;
  bool requires_grad = input.requires_grad();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor &weight = weights[i], &bias = biases[i];
    if (weight.device() != input.device() || weight.scalar_type() != from ||
        weight.requires_grad() != first.requires_grad() || weight.size(1) != input.size(-1))
      return false;
    if (bias.defined() && (bias.device() != weight.device() || bias.scalar_type() != from)) return false;
    elements += weight.numel();
    requires_grad |= weight.requires_grad() || (bias.defined() && bias.requires_grad());
  }
  const bool on_cpu = input.is_cpu() && !cpu_stands_for_accelerator;
  return requires_grad && elements <= (on_cpu ? kMostOnCpu : kMostOnAccelerator);
}

/// Gives layers without a bias a zero one, unless none has a bias.
inline void complete(std::vector<at::Tensor>& biases, at::TensorList weights) {
  if (std::ranges::none_of(biases, [](const at::Tensor& bias) { return bias.defined(); }))
    return biases.clear();
  for (std::size_t i = 0; i < biases.size(); ++i)
    if (!biases[i].defined()) biases[i] = at::zeros({weights[i].size(0)}, weights[i].options());
}

template <class Layer>
[[nodiscard]] bool is_plain(const Layer& layer) {
  if constexpr (requires { layer->has_adapter(), layer->is_int8(); })
    return !layer->has_adapter() && !layer->is_int8();
  return true;
}

/// Returns each layer's output by one product; none if that is not possible or is slower. `biases` has an
/// undefined tensor for a layer without a bias.
[[nodiscard]] inline std::vector<at::Tensor> joint_outputs(const at::Tensor& input,
                                                           const std::vector<at::Tensor>& weights,
                                                           std::vector<at::Tensor> biases) {
  if (!are_joined(input, weights, biases)) return {};
  complete(biases, weights);
  return JointProduct::apply(input.to(product_type(input)), at::TensorList(weights), at::TensorList(biases));
}

}  // namespace detail

/// Returns each linear layer's output for `input`, `[..., K]`, by one product in forward and one for each
/// gradient in backward. Outputs have the bits of the layers' own products or, as with a few rows, differ by
/// rounding; the gradient of the input is summed within the product.
///
/// Calls the layers one by one if gradients are off, if only some weights are frozen, for layers with
/// adapters, and for large weights. Layers are holders of torch::nn::Linear or of modules derived
/// from it that compute the same.
template <class... Layers>
[[nodiscard]] std::array<at::Tensor, sizeof...(Layers)> joint_linear(const at::Tensor& input,
                                                                     Layers... layers) {
  if (!(detail::is_plain(layers) && ...)) return {layers->forward(input)...};
  const auto outputs = detail::joint_outputs(input, {layers->weight...}, {layers->bias...});
  if (outputs.empty()) return {layers->forward(input)...};
  std::array<at::Tensor, sizeof...(Layers)> result;
  std::ranges::copy(outputs, result.begin());
  return result;
}

}  // namespace looptorch
