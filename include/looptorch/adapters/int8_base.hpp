// SPDX-License-Identifier: MIT
// Stores the frozen weights of `Lora` layers in 8 bits: 1 byte per weight instead of 4 or 2. Use it if the
// frozen weights alone fill the memory. Each matmul first dequantises its weight, which costs one more pass
// over that weight. Adapters, biases, norms, convolutions and embeddings keep their types.
//
//   lt::add_lora(*net, {.rank = 8});
//   lt::hold_base_in_int8(*net);
//   lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-3});
#pragma once

#include <looptorch/adapters/lora.hpp>
#include <looptorch/base/error.hpp>

#include <torch/nn/module.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace looptorch {

/// Quantises the weight of each frozen Lora layer to 8 bits by row, with or without an adapter: no element is
/// off by more than 1/254 of its row's largest absolute value, which itself is off by rounding at most.
/// Outputs differ accordingly, and adapters are trained on these outputs. The parameter keeps its name and
/// becomes int8, with a buffer `int8.scale`, so snapshots have both. Skips layers whose weight is trained or
/// already in 8 bits. Returns the number of layers that it changed.
///
/// `fold_lora` restores the former type of all weights, `merge_lora` of those with adapters, which
/// `unmerge_lora` quantises again to the same bits. Load weights before this call: an 8-bit weight cannot be
/// loaded into. Call `to(dtype)` before this call, too: later it would widen the weight, which a forward
/// refuses. Throws UsageError, before anything is changed, for a model without adapters or with merged ones,
/// for a weight that holds NaN or infinity, and for one that another module registers.
inline std::size_t hold_base_in_int8(torch::nn::Module& model) {
  for (const auto& [name, layer] : detail::require_adapters(model, "hold_base_in_int8"))
    if (layer->is_merged())
      throw UsageError(message("hold_base_in_int8: the adapter of ", name,
                               " is merged into its weight: call unmerge_lora first"));
  auto layers = detail::lora_layers(model);
  std::erase_if(layers, [](const detail::NamedLora& layer) {
    return layer.layer->is_int8() || layer.layer->layer().weight.requires_grad();
  });
  detail::refuse_shared_weights(model, layers, "hold_base_in_int8");
  std::vector<std::pair<detail::LoraSlot*, at::Tensor>> frozen;
  for (const auto& [name, layer] : layers) {
    const at::Tensor& weight = layer->layer().weight;
    const at::Tensor largest_N = detail::largest_of_rows(weight);
    if (!largest_N.isfinite().all().item<bool>())
      throw UsageError(message("hold_base_in_int8: the weight of ", name, " holds NaN or infinity"));
    frozen.emplace_back(layer, largest_N);
  }
  for (const auto& [layer, largest_N] : frozen) layer->hold_in_int8(largest_N);
  return frozen.size();
}

}  // namespace looptorch
