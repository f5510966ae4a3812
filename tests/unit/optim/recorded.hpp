// SPDX-License-Identifier: MIT
// The runs that tests/parity/optimizers.py recorded, made again: parameters, gradients, and the comparison.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/base/error.hpp>

#include "support/reference.hpp"

namespace recorded {

inline constexpr int64_t kSteps = 12;

inline const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> shapes{{3, 7}, {7}, {2, 2, 2}, {}};
  return shapes;
}

inline std::vector<at::Tensor> parameters(at::ScalarType type) {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < shapes().size(); ++i)
    result.push_back(reference::wave(shapes()[i], static_cast<double>(i), type).requires_grad_());
  return result;
}

inline at::Tensor gradient(std::size_t index, int64_t step, at::ScalarType type) {
  const double phase = 0.3 * static_cast<double>(step) + static_cast<double>(index);
  return reference::wave(shapes()[index], phase, type) * static_cast<double>(1 + step);
}

/// Parameter 1 has no gradient in steps 3 to 5, parameter 2 has its first in step 2.
inline void set_gradients(std::vector<at::Tensor>& parameters, int64_t step, double factor = 1.0) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool none = (i == 1 && step >= 3 && step <= 5) || (i == 2 && step < 2);
    parameters[i].mutable_grad() =
        none ? at::Tensor() : gradient(i, step, parameters[i].scalar_type()) * factor;
  }
}

/// The recording halves the learning rates as step 6 begins.
inline void schedule(torch::optim::Optimizer& optimizer, int64_t step) {
  if (step != 6) return;
  for (auto& group : optimizer.param_groups()) group.options().set_lr(group.options().get_lr() * 0.5);
}

inline at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts{torch::zeros({0}, torch::kDouble)};
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().flatten().to(torch::kDouble));
  return torch::cat(parts);
}

/// What the optimizer keeps, by parameter and then by key.
template <class Optimizer>
at::Tensor flat_state(const Optimizer& optimizer, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters) {
    const auto state = optimizer.state_of(parameter);
    for (const auto& [key, value] : state.values()) tensors.push_back(*value.template get_if<at::Tensor>());
  }
  return flat(tensors);
}

/// Makes steps [begin, end) of the recorded run.
template <class Optimizer>
void run(Optimizer& optimizer, std::vector<at::Tensor>& parameters, int64_t begin, int64_t end) {
  for (int64_t step = begin; step < end; ++step) {
    schedule(optimizer, step);
    set_gradients(parameters, step);
    optimizer.step();
  }
}

/// Repeats a recorded run with `parameters` in the groups that `make` puts them in.
template <class Make>
void compare_run(const std::string& name, at::ScalarType type, double tolerance, Make make) {
  const auto& tensors = reference::tensors("optimizers");
  auto params = parameters(type);
  auto optimizer = make(params);
  for (int64_t step = 0; step < kSteps; ++step) {
    run(optimizer, params, step, step + 1);
    INFO(name << " step " << step);
    CHECK(reference::difference(flat(params), tensors.at(name + ".history")[step]) < tolerance);
  }
  const auto state = flat_state(optimizer, params);
  REQUIRE(state.numel() == tensors.at(name + ".state").numel());
  if (state.numel() > 0) CHECK(reference::difference(state, tensors.at(name + ".state")) < tolerance * 100);
}

/// The same with one group.
template <class Optimizer, class Options = typename Optimizer::Options>
void compare(const std::string& name, at::ScalarType type, double tolerance, Options options) {
  compare_run(name, type, tolerance,
              [&](const std::vector<at::Tensor>& params) { return Optimizer(params, options); });
}

/// The same with two groups of two parameters each.
template <class Optimizer, class Options = typename Optimizer::Options>
void compare(const std::string& name, at::ScalarType type, double tolerance, Options first, Options second) {
  compare_run(name, type, tolerance, [&](const std::vector<at::Tensor>& params) {
    return Optimizer(
        {Optimizer::group({params[0], params[1]}, first), Optimizer::group({params[2], params[3]}, second)});
  });
}

}  // namespace recorded
