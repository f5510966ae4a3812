// SPDX-License-Identifier: MIT
// Reads values that a script under tests/parity recorded from Python.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors.hpp>

#include <string>

namespace reference {

/// Returns the tensors of tests/parity/data/NAME.safetensors.
inline const looptorch::TensorMap& tensors(const std::string& name) {
  static std::map<std::string, looptorch::TensorMap> files;
  auto found = files.find(name);
  if (found == files.end())
    found = files
                .emplace(name, looptorch::load_safetensors(LOOPTORCH_SOURCE_DIR "/tests/parity/data/" + name +
                                                           ".safetensors")
                                   .tensors)
                .first;
  return found->second;
}

/// Returns sin(0.7 i + phase), with which the scripts under tests/parity fill parameters and gradients.
inline at::Tensor wave(at::IntArrayRef shape, double phase, at::ScalarType type = at::kDouble) {
  const int64_t count = c10::multiply_integers(shape);
  return (torch::arange(count, torch::kDouble) * 0.7 + phase).sin().reshape(shape).to(type);
}

inline const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> shapes{{3, 5}, {7}, {2, 2, 2}, {}};
  return shapes;
}

/// Returns the largest absolute difference.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

}  // namespace reference
