// SPDX-License-Identifier: MIT
// Declares LayerWatch, to which the loop passes each loss. It throws if the loss's graph shows that a
// checkpointed layer was called in a way that bypasses its checkpointing. bypass_watch.hpp implements the
// check, so that programs without checkpointed layers do not compile it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

namespace torch::nn {
class Module;
}

namespace looptorch::detail {

/// Watches a model's layers that are checkpointed.
class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  /// Throws UsageError if the graph of `loss` shows that a layer was called without its wrapper.
  virtual void check(const at::Tensor& loss) = 0;
};

/// A checkpointed layer.
class WatchedLayer {
 public:
  /// Returns a watch over all such layers of `model`, this one included.
  [[nodiscard]] virtual std::unique_ptr<LayerWatch> watch_layers(const torch::nn::Module& model) const = 0;

 protected:
  ~WatchedLayer() = default;
};

/// Returns a watch over a model's layers; null if there are none to watch.
template <class Module>
[[nodiscard]] std::unique_ptr<LayerWatch> watch_layers(const Module& model) {
  for (const auto& module : model.modules())
    if (const auto* layer = dynamic_cast<const WatchedLayer*>(module.get()))
      return layer->watch_layers(model);
  return nullptr;
}

}  // namespace looptorch::detail
