// SPDX-License-Identifier: MIT
// Records the gradients of parameters before a backward that is captured, or that warms up for a capture.
// GradientVersions finds which gradients the backward has changed. GradientHandles restores the former
// gradients after a failed capture.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The gradients of parameters before a backward, to find which ones it reaches.
class GradientVersions {
 public:
  explicit GradientVersions(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters) before_.push_back(version_of(parameter));
  }
  [[nodiscard]] std::vector<at::Tensor> reached() const {
    std::vector<at::Tensor> reached;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (version_of(parameters_[i]) != before_[i]) reached.push_back(parameters_[i]);
    return reached;
  }

 private:
  using Version = std::pair<const void*, std::int64_t>;
  static Version version_of(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) return {nullptr, 0};
    return {gradient.unsafeGetTensorImpl(), gradient._version()};
  }

  const std::vector<at::Tensor>& parameters_;
  std::vector<Version> before_;
};

/// Handles to the parameters' gradients, for a capture that may fail.
class GradientHandles {
 public:
  explicit GradientHandles(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters) gradients_.push_back(parameter.grad());
  }
  void restore() const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
  }

 private:
  const std::vector<at::Tensor>& parameters_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace looptorch::detail
