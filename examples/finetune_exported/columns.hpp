// SPDX-License-Identifier: MIT
// Defines a column: a tensor that each training sample has. There is a column for each input of the model
// and, if the model does not compute its loss itself, one for the labels.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/exported/exported_model.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace finetune_exported {

namespace lt = looptorch;

/// The label that no loss counts, as in PyTorch's cross entropy and in transformers.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// A tensor of each sample, without the batch dimension.
struct Column {
  std::string name;
  std::optional<at::ScalarType> dtype = {};               ///< empty: the type that the data has
  std::optional<std::vector<lt::ExportedDim>> dims = {};  ///< empty: any sizes
  double padding = 0;                                     ///< value that fills up a batch's shorter tensors
};

/// Returns the columns of a model's inputs. Throws UsageError for an input whose first dimension is fixed or
/// missing.
inline std::vector<Column> columns_of(const std::vector<lt::ExportedInput>& inputs,
                                      const std::string& labels) {
  std::vector<Column> columns;
  for (const auto& input : inputs) {
    if (input.dims.empty() || input.dims.front().size)
      throw lt::UsageError(
          "the first dimension of the input \"" + input.name + "\" is " +
          (input.dims.empty() ? std::string("missing") : lt::message("fixed at ", *input.dims.front().size)) +
          ": export the model with an open batch, "
          "dynamic_shapes={\"" +
          input.name + "\": {0: torch.export.Dim.AUTO}, ...}");
    columns.push_back({input.name, input.dtype, std::vector(input.dims.begin() + 1, input.dims.end()),
                       static_cast<double>(input.name == labels ? kIgnoredLabel : 0)});
  }
  return columns;
}

/// Returns the sizes as "[3, s5 <= 16, ?]": a symbol and the greatest size for each open one.
inline std::string sizes_text(const std::vector<lt::ExportedDim>& dims) {
  std::string text;
  for (const auto& dim : dims) {
    text += text.empty() ? "[" : ", ";
    if (dim.size)
      text += std::to_string(*dim.size);
    else
      text += (dim.symbol.empty() ? "?" : dim.symbol) + (dim.max ? lt::message(" <= ", *dim.max) : "");
  }
  return text.empty() ? "[]" : text + "]";
}

}  // namespace finetune_exported
