// SPDX-License-Identifier: MIT
// The datasets that datasets are made of in these tests, and all that one holds.
#pragma once

#include <looptorch/data/datasets/dataset.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace words {

using namespace looptorch;

/// Sample i is "NAME i"; collates to the number of samples.
struct Words {
  std::string name;
  std::int64_t count = 3;
  std::int64_t size() const { return count; }
  std::string get(std::int64_t index) const { return name + " " + std::to_string(index); }
  std::size_t collate(std::span<std::string> samples) const { return samples.size(); }
  std::string identity(std::int64_t index) const { return "file of " + get(index); }
};

/// Owns what cannot be copied, and draws.
struct Seeded {
  std::unique_ptr<int> owned = std::make_unique<int>(1);
  std::int64_t size() const { return 2; }
  std::string get(std::int64_t index, const SampleContext& context) const {
    return std::to_string(index) + " drew " + std::to_string(context.seed);
  }
};

template <class Set>
std::vector<std::string> all(const Set& set, const SampleContext& context = {}) {
  std::vector<std::string> samples;
  for (std::int64_t i = 0; i < set.size(); ++i) samples.push_back(get_sample(set, i, context));
  return samples;
}

using Texts = std::vector<std::string>;

}  // namespace words
