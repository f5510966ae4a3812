// SPDX-License-Identifier: MIT
// Lets all layers of a model recompute while dry steps try that. The other changes that they try are scopes
// of the step itself: AutocastScope and FrozenScope.
#pragma once

#include <looptorch/memory/recompute/bypass.hpp>

#include <functional>
#include <vector>

namespace looptorch::detail {

/// Lets all layers of a model that can recompute do so.
class RecomputeScope {
 public:
  template <class Module>
  explicit RecomputeScope(const Module& model) {
    for (const auto& module : model.modules())
      if (auto* const layer = dynamic_cast<Bypassable*>(module.get()); layer && !layer->saves_most()) {
        put_back_.push_back(layer->keep_options());
        layer->recompute();
      }
  }
  ~RecomputeScope() {
    for (const auto& put_back : put_back_) put_back();
  }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  std::vector<std::function<void()>> put_back_;
};

}  // namespace looptorch::detail
