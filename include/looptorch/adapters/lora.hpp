// SPDX-License-Identifier: MIT
// Low-rank adapters (LoRA; Hu et al., 2021, arXiv 2106.09685) fine-tune a model whose own weights stay
// frozen. Beside a frozen linear layer, two small matrices A and B are trained; their product B A is added to
// the layer's weight. Only A and B need gradients and moments: often below 1 % of what the whole model would
// need. Replace `Linear` by `Lora<Linear>` in the model, and add adapters after loading the pretrained
// weights:
//
//   struct AttentionImpl : torch::nn::Module {
//     lt::Lora<torch::nn::Linear> q_proj{nullptr}, v_proj{nullptr};
//   };
//   lt::add_lora(*net, {.rank = 8, .alpha = 16, .patterns = {"*q_proj", "*v_proj"}});
//   lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-3});  // after add_lora
//
// lora_files.hpp saves adapters alone, in the layout of Python's peft.
#pragma once

#include <looptorch/adapters/lora_layer.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/optim/name_pattern.hpp>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace looptorch {

/// A module holder with `Layer`'s constructors and parameter names, to which an adapter can be added. `Layer`
/// is torch::nn::Linear or a holder of a module derived from it whose `forward` is the same map, W x + b.
/// Without an adapter it computes what `Layer` does. Works in Sequential. Call it through this holder:
/// `as<Layer>()->forward` bypasses the adapter. Cannot be cloned (throws UsageError).
template <LinearLayer Layer>
class Lora : public torch::nn::ModuleHolder<detail::LoraImpl<Layer>> {
 public:
  using torch::nn::ModuleHolder<detail::LoraImpl<Layer>>::ModuleHolder;
  using Impl = detail::LoraImpl<Layer>;
};

namespace detail {

struct NamedLora {
  std::string name;  ///< The layer's full name, as "encoder.0.q_proj".
  LoraSlot* layer;
};

/// Returns the Lora layers below the model, each once under its first name.
inline std::vector<NamedLora> lora_layers(const torch::nn::Module& model) {
  std::vector<NamedLora> layers;
  std::set<const LoraSlot*> known;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (auto* layer = dynamic_cast<LoraSlot*>(item.value().get()); layer && known.insert(layer).second)
      layers.push_back({item.key(), layer});
  return layers;
}

inline std::vector<NamedLora> adapted_layers(const torch::nn::Module& model) {
  std::vector<NamedLora> layers = lora_layers(model);
  std::erase_if(layers, [](const NamedLora& layer) { return !layer.layer->has_adapter(); });
  return layers;
}

inline std::vector<NamedLora> require_adapters(const torch::nn::Module& model, const char* call) {
  auto layers = adapted_layers(model);
  if (layers.empty()) throw UsageError(message(call, ": the model has no adapters: call add_lora first"));
  return layers;
}

inline std::string lora_names(const std::vector<NamedLora>& layers) {
  constexpr std::size_t kNamed = 6;
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, layers.size()); ++i)
    names += (i == 0 ? ": " : ", ") + layers[i].name;
  return message(layers.size(), names, layers.size() > kNamed ? ", ..." : "");
}

/// Returns the layers that match a pattern. Throws UsageError for a pattern that matches none.
inline std::vector<NamedLora> select_lora(const std::vector<NamedLora>& layers,
                                          const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const NamedLora& layer) { return matches_pattern(layer.name, pattern); }))
      throw UsageError(
          message("no Lora layer of the model matches '", pattern, "'; it has ", lora_names(layers)));
  std::vector<NamedLora> selected;
  for (const NamedLora& layer : layers)
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return matches_pattern(layer.name, pattern); }))
      selected.push_back(layer);
  return selected;
}

/// True if a write to one tensor may change the other.
[[nodiscard]] inline bool shares_memory(const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined() || !other.defined()) return false;
  if (one.is_same(other)) return true;
  return one.has_storage() && other.has_storage() && one.is_alias_of(other) &&
         at::get_overlap_status(one, other) != at::MemOverlapStatus::No;
}

/// Throws UsageError if another module of the model registers the weight of one of the layers, as a tied
/// embedding does: `call` would change what that module computes.
inline void refuse_shared_weights(const torch::nn::Module& model, const std::vector<NamedLora>& layers,
                                  const char* call) {
  for (const auto& item : model.named_modules()) {
    const torch::nn::Module& module = *item.value();
    for (const auto& tensors : {module.named_parameters(/*recurse=*/false), module.named_buffers(false)})
      for (const auto& tensor : tensors)
        for (const NamedLora& layer : layers)
          if (torch::nn::LinearImpl& own = layer.layer->layer();
              &own != &module && shares_memory(own.weight, tensor.value()))
            throw UsageError(message(call, ": the weight of ", layer.name, " is also ", item.key(),
                                     item.key().empty() ? "" : ".", tensor.key(),
                                     ", which would change with it: give ", layer.name,
                                     " a copy of the weight first, or leave the layer as it is. See "
                                     "docs/adapters.md#tied-weights"));
  }
}

/// Adds adapters, and freezes every other parameter of the model.
inline void attach_lora(torch::nn::Module& model, const std::vector<NamedLora>& layers,
                        const LoraOptions& options) {
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  for (const NamedLora& layer : layers) layer.layer->attach(options);
}

}  // namespace detail

/// Adds an adapter to each Lora layer whose full name matches one of the patterns, as "*.q_proj", and freezes
/// all other parameters of the model. `A` starts random and `B` zero, so the model's outputs do not change.
/// Returns the number of adapters. Make optimizers afterwards, and set `requires_grad` again on other
/// parameters to train. Throws UsageError, before anything is changed, for options out of range, a pattern
/// that matches no Lora layer, and a model that has adapters.
inline std::size_t add_lora(torch::nn::Module& model, const LoraOptions& options) {
  detail::check_lora(options);
  const auto layers = detail::select_lora(detail::lora_layers(model), options.patterns);
  if (const auto present = detail::adapted_layers(model); !present.empty())
    throw UsageError(message("add_lora: the model has adapters already, ", detail::lora_names(present)));
  detail::attach_lora(model, layers, options);
  return layers.size();
}

/// Adds each adapter's scale B A to its layer's weight, so that a forward pass costs as much as without
/// adapters. Outputs stay equal within rounding. Holds a copy of the old weights, from which `unmerge_lora`
/// restores their bits. Merged layers cannot be trained: their forward throws UsageError in training mode
/// with gradients. Skips layers already merged. Throws UsageError, before anything is changed, if the model
/// has no adapters, and for a layer whose weight another module registers.
inline void merge_lora(torch::nn::Module& model) {
  const auto layers = detail::require_adapters(model, "merge_lora");
  detail::refuse_shared_weights(model, layers, "merge_lora");
  for (const auto& layer : layers) layer.layer->merge();
}

/// Restores the weights of merged layers bit for bit, and discards later writes to them. Throws UsageError if
/// the model has no adapters.
inline void unmerge_lora(torch::nn::Module& model) {
  for (const auto& layer : detail::require_adapters(model, "unmerge_lora")) layer.layer->unmerge();
}

/// Merges the adapters and removes them, for export: the model is left with its original parameters. Frozen
/// ones stay frozen. Throws UsageError, before anything is changed, if the model has no adapters, and for an
/// adapted layer whose weight another module registers.
inline void fold_lora(torch::nn::Module& model) {
  const auto layers = detail::require_adapters(model, "fold_lora");
  detail::refuse_shared_weights(model, layers, "fold_lora");
  for (const auto& layer : layers) layer.layer->fold();
  for (const auto& layer : detail::lora_layers(model))
    if (layer.layer->is_int8()) layer.layer->widen();
}

}  // namespace looptorch
