// SPDX-License-Identifier: MIT
// Changes of a run that dry steps try: recomputation, bf16, frozen parts. Each holds while its object lives.
#pragma once

#include <looptorch/memory/recompute/bypass.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Lets all layers of a model that can recompute do so.
class RecomputeScope {
 public:
  template <class Module>
  explicit RecomputeScope(const Module& model) {
    for (const auto& module : model.modules())
      if (auto* const layer = dynamic_cast<Bypassable*>(module.get()); layer && !layer->saves_memory())
        layers_.push_back(layer);
    for (Bypassable* layer : layers_) layer->save_memory(true);
  }
  ~RecomputeScope() {
    for (Bypassable* layer : layers_) layer->save_memory(false);
  }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  /// False for a model without such layers, and if all recompute already.
  [[nodiscard]] bool changes() const { return !layers_.empty(); }

 private:
  std::vector<Bypassable*> layers_;
};

/// Runs forward and backward of this thread under autocast to bf16.
class Bf16Scope {
 public:
  explicit Bf16Scope(c10::DeviceType device)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Bf16Scope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }
  Bf16Scope(const Bf16Scope&) = delete;
  Bf16Scope& operator=(const Bf16Scope&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType dtype_;
};

/// Freezes parameters.
class FreezeScope {
 public:
  explicit FreezeScope(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters)
      if (parameter.requires_grad()) frozen_.push_back(parameter);
    for (const at::Tensor& parameter : frozen_) parameter.set_requires_grad(false);
  }
  ~FreezeScope() {
    for (const at::Tensor& parameter : frozen_) parameter.set_requires_grad(true);
  }
  /// False if all of them were frozen already.
  [[nodiscard]] bool changes() const { return !frozen_.empty(); }

  FreezeScope(const FreezeScope&) = delete;
  FreezeScope& operator=(const FreezeScope&) = delete;

 private:
  std::vector<at::Tensor> frozen_;
};

}  // namespace looptorch::detail
