// SPDX-License-Identifier: MIT
// A dataset of three classes for small runs, whose samples depend only on their index.
#pragma once

#include "support/precompiled.hpp"

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace numbered {

struct Batch {
  at::Tensor features, labels;  // [B, 4], [B]
};

struct Samples {
  std::int64_t count;
  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] Batch get(std::int64_t index) const {
    const auto at = static_cast<double>(index);
    return {torch::tensor({std::sin(at), std::cos(2 * at), std::sin(3 * at), std::cos(at / 3)}, at::kFloat),
            torch::tensor(index % 3)};
  }
  [[nodiscard]] Batch collate(std::span<Batch> samples) const {
    std::vector<at::Tensor> features, labels;
    for (const Batch& sample : samples) features.push_back(sample.features), labels.push_back(sample.labels);
    return {torch::stack(features), torch::stack(labels)};
  }
};

}  // namespace numbered
