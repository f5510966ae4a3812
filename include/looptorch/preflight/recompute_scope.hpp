// SPDX-License-Identifier: MIT
// Makes every `Checkpointed` layer of a model recompute its activations until the end of a scope. A preflight
// uses it to try whether the run then fits.
#pragma once

#include <looptorch/memory/recompute/bypass.hpp>

#include <functional>
#include <string>
#include <vector>

namespace looptorch::detail {

/// Calls `use` with each layer of a model that could recompute and does not.
template <class Module, class Use>
void each_that_could_recompute(const Module& model, const Use& use) {
  for (const auto& module : model.modules())
    if (auto* const layer = dynamic_cast<Bypassable*>(module.get()); layer && !layer->saves_most())
      use(*layer);
}

/// Returns a type's name as in its declaration: without an unnamed namespace.
[[nodiscard]] inline std::string as_written(std::string type) {
  for (const std::string unnamed : {"(anonymous namespace)::", "{anonymous}::"})
    for (auto at = type.find(unnamed); at != type.npos; at = type.find(unnamed))
      type.erase(at, unnamed.size());
  return type;
}

/// Returns the policies of these layers, each once, as a Trainer lists them; empty without such layers.
template <class Module>
[[nodiscard]] std::string recomputing_policies(const Module& model) {
  std::string list;
  each_that_could_recompute(model, [&](const Bypassable& layer) {
    const std::string policy = as_written(layer.policy());
    if (list.find(policy) == std::string::npos) list += (list.empty() ? "" : ", ") + policy;
  });
  return list;
}

/// Makes all layers of a model recompute that can.
class RecomputeScope {
 public:
  template <class Module>
  explicit RecomputeScope(const Module& model) {
    each_that_could_recompute(model, [this](Bypassable& layer) {
      restorers_.push_back(layer.keep_options());
      layer.recompute();
    });
  }
  ~RecomputeScope() {
    for (const auto& restore : restorers_) restore();
  }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  std::vector<std::function<void()>> restorers_;
};

}  // namespace looptorch::detail
