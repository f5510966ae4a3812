// SPDX-License-Identifier: MIT
// Prepares a model and the process for an export, and restores both afterwards: sets eval mode, and disables
// gradients and oneDNN's operators. Random generators are restored as well.
#pragma once

#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/loop/evaluation.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <vector>

namespace looptorch::detail {

/// Sets eval mode, and switches off gradients and oneDNN's own operators, which other machines lack. On
/// destruction restores all of these and the random generators. oneDNN's switch is the whole process's: other
/// threads may compute slower meanwhile.
class ExportScope {
 public:
  ExportScope(torch::nn::Module& module, at::Device device)
      : eval_(module), device_(device), generators_{state_of(default_generator(at::kCPU))} {
    if (!device.is_cpu()) generators_.push_back(state_of(default_generator(device)));
    onednn_ = at::globalContext().userEnabledMkldnn();
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~ExportScope() {
    at::globalContext().setUserEnabledMkldnn(onednn_);
    restore_generators();
  }
  ExportScope(const ExportScope&) = delete;
  ExportScope& operator=(const ExportScope&) = delete;

  /// Restores the random generators, so that the next call draws the same numbers again.
  void restore_generators() const {
    set_state(default_generator(at::kCPU), generators_[0]);
    if (generators_.size() > 1) set_state(default_generator(device_), generators_[1]);
  }

 private:
  EvalScope<torch::nn::Module> eval_;
  const at::NoGradGuard no_grad_;
  at::Device device_;
  std::vector<at::Tensor> generators_;
  bool onednn_ = true;
};

}  // namespace looptorch::detail
