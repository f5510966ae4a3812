// SPDX-License-Identifier: MIT
// Declares LayerWatch, to which the loop passes each loss. It throws if the loss's graph shows that a
// checkpointed layer was called in a way that bypasses its checkpointing. bypass_watch.hpp implements the
// check, so that programs without checkpointed layers do not compile it. Also has SavingBlockWatch, which notices whether a forward
// pass runs a checkpointed block.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

namespace torch::nn {
class Module;
}

namespace looptorch::detail {

/// Notices whether a block that saves memory begins on this thread while the watch lives.
class SavingBlockWatch {
 public:
  SavingBlockWatch() : outer_(std::exchange(innermost(), this)) {}
  ~SavingBlockWatch() { innermost() = outer_; }
  SavingBlockWatch(const SavingBlockWatch&) = delete;
  SavingBlockWatch& operator=(const SavingBlockWatch&) = delete;

  [[nodiscard]] bool saw_one() const { return saw_one_; }

  /// Tells the watches of this thread that a block begins.
  static void notify() {
    for (SavingBlockWatch* watch = innermost(); watch; watch = watch->outer_) watch->saw_one_ = true;
  }

 private:
  static SavingBlockWatch*& innermost() {
    thread_local SavingBlockWatch* watch = nullptr;
    return watch;
  }

  SavingBlockWatch* const outer_;
  bool saw_one_ = false;
};

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
