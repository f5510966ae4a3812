// SPDX-License-Identifier: MIT
// Converts the alignment of a transcript with its reference (edit_alignment.hpp) to an example for a run's
// report, which marks the words that differ. Also chooses which clips of a dataset to show.
#pragma once

#include <looptorch/base/example.hpp>
#include <looptorch/metrics/edit_alignment.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Returns the example of a reference and a hypothesis, as `align_words` and `align_characters` align them.
[[nodiscard]] inline TextExample text_example(std::string title, const Alignment& alignment) {
  TextExample example{.title = std::move(title), .separator = alignment.separator};
  for (const Edit& edit : alignment.edits) example.pieces.push_back({edit.reference, edit.hypothesis});
  return example;
}

/// Returns `count` of the indices below `size`, or all if there are fewer, evenly spaced from 0 on.
[[nodiscard]] inline std::vector<std::size_t> evenly_spaced(std::size_t count, std::size_t size) {
  std::vector<std::size_t> indices(std::min(count, size));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i * size / indices.size();
  return indices;
}

}  // namespace looptorch
