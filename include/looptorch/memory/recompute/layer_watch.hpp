// SPDX-License-Identifier: MIT
// Declares the loop's interface to a check of checkpointed layers, which is run on the graph of each loss.
// bypass_watch.hpp implements the check. Programs without checkpointed layers do not compile it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace torch::nn {
class Module;
}

namespace looptorch::detail {

/// Set on a thread when a block that saves memory begins; reset by the reader.
inline thread_local bool saving_block_ran = false;

/// Watches the layers of a model that save memory.
class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  /// Throws UsageError for a layer that was called past its wrapper in the graph of `loss`.
  virtual void check(const at::Tensor& loss) = 0;
};

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
