// SPDX-License-Identifier: MIT
// The files that tests/parity/exported_programs.py wrote.
#pragma once

#include <looptorch/exported/exported_model.hpp>

#include "support/reference.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace exported_programs {

inline std::string path(const std::string& name) {
  return LOOPTORCH_SOURCE_DIR "/tests/parity/data/exported_programs/" + name + ".pt2";
}
inline looptorch::ExportedModel load(const std::string& name) { return looptorch::ExportedModel(path(name)); }
inline const looptorch::TensorMap& recorded(const std::string& name) {
  return reference::tensors("exported_programs/" + name);
}

inline std::vector<at::Tensor> inputs_of(const looptorch::TensorMap& recorded) {
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; recorded.contains("input." + std::to_string(i)); ++i)
    inputs.push_back(recorded.at("input." + std::to_string(i)));
  return inputs;
}

/// The script's loss.
inline at::Tensor loss_of(const std::vector<at::Tensor>& outputs) {
  at::Tensor sum;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto part =
        (outputs[i] * reference::wave(outputs[i].sizes(), static_cast<double>(i), at::kFloat)).mean();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

inline std::size_t count(const looptorch::TensorMap& tensors, const std::string& prefix) {
  return static_cast<std::size_t>(std::count_if(
      tensors.begin(), tensors.end(), [&](const auto& item) { return item.first.starts_with(prefix); }));
}

}  // namespace exported_programs
