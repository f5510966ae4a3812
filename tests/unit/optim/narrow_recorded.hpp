// SPDX-License-Identifier: MIT
// The runs that tests/parity/narrow_optimizers.py recorded, made again.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/optim/gradients/gradients.hpp>

#include "support/reference.hpp"

#include <cmath>
#include <string>

namespace narrow_recorded {

inline constexpr int64_t kSize = 600;
inline constexpr int64_t kSteps = 20;

inline const at::Tensor& tensor(const std::string& name) {
  return reference::tensors("narrow_optimizers").at(name);
}

inline at::Tensor weights(at::ScalarType type) { return reference::wave({kSize}, 0, type).requires_grad_(); }

/// The gradient of a step counted from 1: sizes from 1 to 1e-4 within a block.
inline at::Tensor gradient(int64_t step, at::ScalarType type) {
  const auto exponents = torch::arange(kSize, torch::kDouble).remainder(97) / 96 * -4;
  const auto numbers =
      reference::wave({kSize}, 0.3 * static_cast<double>(step)) * torch::pow(10.0, exponents);
  return numbers.to(torch::kFloat).to(type);
}

/// Makes steps (begin, end] of a run, whose factor of the gradients is 0.5.
template <class Optimizer>
void run(Optimizer& optimizer, at::Tensor& parameter, int64_t begin, int64_t end) {
  for (int64_t step = begin + 1; step <= end; ++step) {
    parameter.mutable_grad() = gradient(step, parameter.scalar_type());
    looptorch::GradientScale scale;
    scale.multiply(0.5);
    optimizer.step(scale, at::Tensor());
  }
}

/// Repeats a recorded run. A last bit, which depends on the processor, can tip a rounding to the code beside;
/// so at most 1 % of the weights may differ, by the 5 % of a step's change that a code can make.
template <class Optimizer>
void compare(const std::string& name, Optimizer& optimizer, at::Tensor& parameter, double tolerance) {
  const at::Tensor& history = tensor(name + ".history");
  for (int64_t i = 0; i < history.size(0); ++i) {
    run(optimizer, parameter, 5 * i, 5 * i + 5);
    INFO(name << " step " << 5 * i + 5);
    const auto differences = (parameter.detach().to(torch::kDouble) - history[i]).abs();
    CHECK(differences.gt(tolerance).sum().item<int64_t>() <= kSize / 100);
    CHECK(differences.max().item<double>() < 0.02);
  }
}

/// The share of elements that differ.
inline double share_of_others(const at::Tensor& a, const at::Tensor& b) {
  return a.ne(b).to(torch::kDouble).mean().item<double>();
}

}  // namespace narrow_recorded
