// SPDX-License-Identifier: MIT
// A layer whose forward is not virtual can be called past its wrapper. That costs the memory that the wrapper
// was to save, and nobody would notice: the Trainer looks once.
#pragma once

#include <looptorch/error.hpp>

#include <atomic>
#include <string>

namespace looptorch::detail {

/// A module that knows whether its own forward has been called with gradients.
struct Bypassable {
  std::atomic<bool> entered = false;
  /// Whether a call past it makes a difference.
  [[nodiscard]] virtual bool saves_memory() const = 0;

 protected:
  ~Bypassable() = default;
};

/// A new fit looks again.
template <class Module>
void forget_entered(const Module& model) {
  for (const auto& module : model.modules())
    if (auto* layer = dynamic_cast<Bypassable*>(module.get())) layer->entered = false;
}

/// Whether all that the module trains has a gradient: a parameter that it shares may have one from elsewhere.
template <class Module>
bool has_all_gradients(const Module& module) {
  bool any = false;
  for (const auto& parameter : module.parameters()) {
    if (!parameter.requires_grad()) continue;
    if (!parameter.grad().defined()) return false;
    any = true;
  }
  return any;
}

/// Throws UsageError for a layer that has received gradients though its forward was not called.
template <class Module>
void check_bypassed(const Module& model) {
  for (const auto& item : model.named_modules()) {
    const auto* layer = dynamic_cast<const Bypassable*>(item.value().get());
    if (layer && !layer->entered && layer->saves_memory() && has_all_gradients(*item.value()))
      throw UsageError(
          message("layer '", item.key(),
                  "' is Checkpointed, but its forward was called past that, as of the plain layer: ",
                  "it kept all its activations. Call it through its holder, or "
                  "as<Checkpointed<Layer>>()->forward(...) instead of as<Layer>()->forward(...)"));
  }
}

}  // namespace looptorch::detail
