// SPDX-License-Identifier: MIT
// Makes inputs of other sizes and values from an example, to trace a model with them and to check the result.
// Repeats or cuts the example for other sizes; flips it, and halves floats, for other values. So valid
// tokens, probabilities and lengths stay valid.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/export/program/dynamic_dims.hpp>
#include <looptorch/export/program/export_error.hpp>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace looptorch::detail {

/// Returns the inputs with these dynamic sizes.
[[nodiscard]] inline std::vector<at::Tensor> inputs_at(std::vector<at::Tensor> inputs,
                                                       const std::vector<DynamicDim>& dims,
                                                       const DimValues& values) {
  for (std::size_t i = 0; i < dims.size(); ++i)
    for (const DimPlace& place : dims[i].places) {
      at::Tensor& input = inputs.at(place.input);
      const auto positions =
          at::arange(values[i] * place.multiple, at::TensorOptions(at::kLong).device(input.device()));
      input = input.index_select(place.dim, positions.remainder(input.size(place.dim)));
    }
  return inputs;
}

/// Returns inputs of the same shapes that hold other values, unless all values of an input are the same
/// integer.
[[nodiscard]] inline std::vector<at::Tensor> with_other_values(std::vector<at::Tensor> inputs) {
  for (at::Tensor& input : inputs) {
    if (input.dim() > 0) input = input.flip(input.dim() - 1);
    if (input.is_floating_point()) input = input * 0.5;
  }
  return inputs;
}

/// Returns the dynamic sizes of the example, each checked. Throws ExportError.
[[nodiscard]] inline DimValues example_dims(const std::vector<at::Tensor>& inputs,
                                            const std::vector<DynamicDim>& dims) {
  DimValues values;
  for (const DynamicDim& dim : dims) {
    if (dim.places.empty()) throw ExportError(message("the dynamic size \"", dim.name, "\" has no places"));
    if (dim.min < 1)
      throw ExportError(
          message("the dynamic size \"", dim.name, "\" has min ", dim.min, ", which must be at least 1"));
    if (dim.max && *dim.max < dim.min)
      throw ExportError(
          message("the dynamic size \"", dim.name, "\" has max ", *dim.max, ", below its min ", dim.min));
    for (const DimPlace& place : dim.places) {
      if (place.multiple < 1)
        throw ExportError(message("the dynamic size \"", dim.name, "\" has a place with multiple ",
                                  place.multiple, ", which must be at least 1"));
      if (place.input >= inputs.size() || place.dim < 0 || place.dim >= inputs[place.input].dim())
        throw ExportError(message("the dynamic size \"", dim.name, "\" is to be dimension ", place.dim,
                                  " of input ", place.input, ", which does not exist"));
      const std::int64_t size = inputs[place.input].size(place.dim), value = size / place.multiple;
      const bool is_first = &place == &dim.places.front();
      if (size % place.multiple != 0 || (!is_first && value != values.back()))
        throw ExportError(message("the dynamic size \"", dim.name, "\" is ", is_first ? value : values.back(),
                                  ", and input ", place.input, " has ", size, " in dimension ", place.dim,
                                  ", not ", place.multiple, " times as many"));
      if (is_first) values.push_back(value);
    }
    if (values.back() < 2 || values.back() < dim.min || (dim.max && values.back() > *dim.max))
      throw ExportError(message("the example's \"", dim.name, "\" is ", values.back(),
                                "; it must be 2 or more, since 1 is broadcast, and within the limits"));
  }
  return values;
}

/// Returns for each dim whether there is room for `reach` larger sizes (1) or smaller ones (-1). Throws
/// ExportError if neither.
[[nodiscard]] inline std::vector<std::int64_t> directions(const std::vector<DynamicDim>& dims,
                                                          const DimValues& values,
                                                          std::int64_t (*reach)(std::size_t)) {
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool up = !dims[i].max || values[i] + reach(i) <= *dims[i].max;
    const bool down = values[i] - reach(i) >= std::max<std::int64_t>(dims[i].min, 2);
    if (!up && !down)
      throw ExportError(message("the dynamic size \"", dims[i].name, "\" has no room for ", reach(i),
                                " other sizes beside the example's ", values[i]));
    all.push_back(up ? 1 : -1);
  }
  return all;
}

}  // namespace looptorch::detail
