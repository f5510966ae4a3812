// SPDX-License-Identifier: MIT
// Checks that the tensors of a sample have the types and sizes that the model takes; throws DataError,
// defined here, if not. Data are checked as they are read, so that an error names file and line.
#pragma once

#include <looptorch/base/error.hpp>

#include "columns.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace finetune_exported {

/// Thrown for data that does not fit the model; names the file, and the line if it has lines.
struct DataError : lt::Error {
  using lt::Error::Error;
};

/// Throws DataError, which begins with `where`, unless a sample's tensor fits its column. With `padded`, a
/// smaller tensor fits too.
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

/// Compares the open sizes of one sample's tensors. Sizes of one symbol must be equal, such as those of
/// tokens and of their mask.
class OpenSizes {
 public:
  /// Throws DataError, which begins with `where`, if a size differs from an earlier one of the same symbol.
  void add(const std::string& where, const at::Tensor& tensor, const Column& column) {
    if (!column.dims) return;
    for (std::size_t d = 0; d < column.dims->size(); ++d) {
      const std::string& symbol = (*column.dims)[d].symbol;
      if (symbol.empty()) continue;
      const std::int64_t size = tensor.size(static_cast<std::int64_t>(d));
      const auto [known, is_new] = sizes_.try_emplace(symbol, size, column.name);
      if (!is_new && known->second.first != size)
        throw DataError(lt::message(where, ": \"", column.name, "\" has a size of ", size, " and \"",
                                    known->second.second, "\" of ", known->second.first,
                                    ", and the model takes one size, ", symbol, ", for both"));
    }
  }

 private:
  std::map<std::string, std::pair<std::int64_t, std::string>> sizes_;  // sizes and columns by symbol
};

}  // namespace finetune_exported
