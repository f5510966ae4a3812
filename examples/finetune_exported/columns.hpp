// SPDX-License-Identifier: MIT
// The columns of a training sample: a tensor for each input of the model and, if the model does not compute
// its loss itself, one for the labels.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/exported/exported_model.hpp>

#include <ATen/core/Tensor.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace finetune_exported {

namespace lt = looptorch;

/// Thrown for data that does not fit the model; names the file, and the line if it has lines.
struct DataError : lt::Error {
  using lt::Error::Error;
};

/// The label that no loss counts, as in PyTorch's cross entropy and in transformers.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// A tensor of each sample, without the batch dimension.
struct Column {
  std::string name;
  std::optional<at::ScalarType> dtype = {};               ///< empty: the data's
  std::optional<std::vector<lt::ExportedDim>> dims = {};  ///< empty: any
  double padding = 0;                                     ///< after the shorter ones of a batch
};

/// Returns the columns of a model's inputs. Throws UsageError for a fixed first dimension.
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

/// Prints the table of inputs, and the outputs' names.
inline void print_table(std::ostream& out, const lt::ExportedModelImpl& model) {
  constexpr int kName = 24, kType = 8;
  out << std::left << std::setw(kName) << "input" << std::setw(kType) << "type"
      << "sizes\n";
  for (const auto& input : model.inputs())
    out << std::setw(kName) << input.name << std::setw(kType) << lt::message(input.dtype)
        << sizes_text(input.dims) << '\n';
  out << "outputs:";
  for (const auto& name : model.output_names()) out << ' ' << name;
  out << std::endl;
}

/// Throws DataError, which begins with `where`, unless a sample's tensor fits its column. With `padded`, a
/// shorter one fits too.
inline void check_fits(const std::string& where, const at::Tensor& tensor, const Column& column,
                       bool padded) {
  const auto fail = [&](const std::string& what) {
    throw DataError(where + ": \"" + column.name + "\" " + what);
  };
  if (column.dtype) {
    const bool to_float = at::isFloatingType(*column.dtype);
    if (to_float != tensor.is_floating_point())
      fail(lt::message("is ", tensor.scalar_type(), ", and the model takes ", *column.dtype));
  }
  if (!column.dims) return;
  if (tensor.dim() != static_cast<std::int64_t>(column.dims->size()))
    fail(lt::message("has sizes ", tensor.sizes(), " in each sample, and the model takes ",
                     sizes_text(*column.dims)));
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    const auto& dim = (*column.dims)[static_cast<std::size_t>(d)];
    const std::int64_t most = dim.size ? *dim.size : dim.max.value_or(tensor.size(d));
    if (tensor.size(d) > most || (dim.size && !padded && tensor.size(d) < most))
      fail(lt::message("has sizes ", tensor.sizes(), " in each sample, and the model takes ",
                       sizes_text(*column.dims)));
  }
}

}  // namespace finetune_exported
