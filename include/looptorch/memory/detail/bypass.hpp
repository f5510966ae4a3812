// SPDX-License-Identifier: MIT
// A layer whose forward is not virtual can be called past its wrapper. That costs the memory that the wrapper
// was to save, and nobody would notice: the Trainer looks once.
#pragma once

#include <looptorch/error.hpp>

#include <atomic>
#include <string>

namespace looptorch::detail {

/// A module that knows whether its own forward has been called.
struct Bypassable {
  std::atomic<bool> entered = false;

 protected:
  ~Bypassable() = default;
};

/// Throws UsageError for a layer that has received gradients though its forward was never called.
template <class Module>
void check_bypassed(const Module& model) {
  for (const auto& item : model.named_modules()) {
    const auto* layer = dynamic_cast<const Bypassable*>(item.value().get());
    if (!layer || layer->entered) continue;
    for (const auto& parameter : item.value()->parameters())
      if (parameter.grad().defined())
        throw UsageError(
            message("layer '", item.key(),
                    "' is Checkpointed, but its forward was called past that, as of the plain layer: ",
                    "it kept all its activations. Call it through its holder, or "
                    "as<Checkpointed<Layer>>()->forward(...) instead of as<Layer>()->forward(...)"));
  }
}

}  // namespace looptorch::detail
