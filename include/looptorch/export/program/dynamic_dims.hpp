// SPDX-License-Identifier: MIT
// Declares `DynamicDim`, a size that may change from call to call of an exported model, such as the batch
// size, although the model is traced with one example. A user of export_model gives the size a name, and
// lists the dimensions of the inputs that have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace looptorch {

/// A dimension of an input, `multiple` times the size of a DynamicDim.
struct DimPlace {
  std::size_t input = 0;
  std::int64_t dim = 0;
  std::int64_t multiple = 1;
};

/// A size that stays open in the exported model: `{.name = "batch", .places = {{0, 0}}}` is the first
/// dimension of the first input. A model that halves its frames by a stride needs `multiple` 2 for them,
/// since `(T + 1) / 2` is no polynomial.
struct DynamicDim {
  std::string name;
  std::vector<DimPlace> places;
  std::int64_t min = 1;
  std::optional<std::int64_t> max = {};
};

/// The value of each DynamicDim.
using DimValues = std::vector<std::int64_t>;

}  // namespace looptorch
