// SPDX-License-Identifier: MIT
// Converts an alignment to an example for a run's report, which marks the words that differ.
#pragma once

#include <looptorch/base/example.hpp>
#include <looptorch/metrics/edit_alignment.hpp>

#include <string>
#include <utility>

namespace looptorch {

/// Returns the example of a reference and a hypothesis, as `align_words` and `align_characters` align them.
[[nodiscard]] inline TextExample text_example(std::string title, const Alignment& alignment) {
  TextExample example{.title = std::move(title), .separator = alignment.separator};
  for (const Edit& edit : alignment.edits) example.pieces.push_back({edit.reference, edit.hypothesis});
  return example;
}

}  // namespace looptorch
