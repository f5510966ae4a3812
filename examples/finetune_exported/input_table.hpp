// SPDX-License-Identifier: MIT
// Prints what a model takes and returns, so that a user sees which tensors the data must have.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/exported/exported_model.hpp>

#include "columns.hpp"

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <ostream>

namespace finetune_exported {

/// Prints the table of inputs, and the outputs' names.
inline void print_table(std::ostream& out, const lt::ExportedModelImpl& model) {
  constexpr int kType = 8;
  std::size_t longest = 23;
  for (const auto& input : model.inputs()) longest = std::max(longest, input.name.size());
  const int name = static_cast<int>(longest) + 1;
  out << std::left << std::setw(name) << "input" << std::setw(kType) << "type"
      << "sizes\n";
  for (const auto& input : model.inputs())
    out << std::setw(name) << input.name << std::setw(kType) << lt::message(input.dtype)
        << sizes_text(input.dims) << '\n';
  out << "outputs:";
  for (const auto& output : model.output_names()) out << ' ' << output;
  out << std::endl;
}

}  // namespace finetune_exported
