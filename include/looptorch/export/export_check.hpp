// SPDX-License-Identifier: MIT
// Compares an exported program with its model: runs both on several inputs, and throws if their outputs
// differ. export_model calls it before it writes the file.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/export/program/equal_values.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/run_program.hpp>
#include <looptorch/export/program/sized_inputs.hpp>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the sizes at which a program is compared: the example's, larger or smaller ones, the smallest.
[[nodiscard]] inline std::vector<DimValues> sizes_to_check(const ExportedProgram& program) {
  std::vector<DimValues> all{program.example_dims};
  if (program.dims.empty()) return all;
  DimValues other = program.example_dims, smallest;
  for (std::size_t i = 0; i < other.size(); ++i) {
    const DynamicDim& dim = program.dims[i];
    const auto step = 5 + 2 * static_cast<std::int64_t>(i);
    other[i] = dim.max && other[i] + step > *dim.max ? std::max(dim.min, other[i] - step) : other[i] + step;
    smallest.push_back(dim.min);
  }
  all.push_back(std::move(other));
  all.push_back(std::move(smallest));
  return all;
}

[[nodiscard]] inline std::string text_of(const ExportedProgram& program, const DimValues& dims) {
  std::string text;
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += message(i == 0 ? " at " : ", ", program.dims[i].name, ' ', dims[i]);
  return text;
}

/// Returns the largest difference between two outputs, NaN if either holds one.
[[nodiscard]] inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

/// True if `found` differs from `wanted` about as much as two calls of the forward differ from each other:
/// some GPU operators add in any order. False if those calls differ by more than rounding, and on a CPU.
template <class Repeat>
[[nodiscard]] bool is_own_noise(const at::Tensor& wanted, const at::Tensor& found, const Repeat& repeat) {
  if (wanted.is_cpu() || !wanted.is_floating_point() || wanted.sizes() != found.sizes()) return false;
  double noise = 0;
  for (int run = 0; run < 3; ++run) noise = std::max(noise, largest_difference(wanted, repeat()));
  const double unit = c10::elementSize(wanted.scalar_type()) > 2 ? 1.2e-7 : 7.8e-3;
  return noise <= std::sqrt(unit) * wanted.abs().max().item<double>() &&
         largest_difference(wanted, found) <= 8 * noise;
}

/// Throws ExportError unless the program's outputs equal those of `forward` bit for bit, or on a device up to
/// `is_own_noise`. Compares at several sizes, each with two sets of values. `again` restores the random
/// generators, so that both draw the same numbers.
template <class Forward>
void check_program(const ExportedProgram& program, const Forward& forward,
                   const std::function<void()>& again) {
  ProgramRunner run(program);
  std::vector<at::Tensor> example;
  for (const auto& input : program.inputs) example.push_back(input.example);
  for (const DimValues& dims : sizes_to_check(program)) {
    for (const bool other : {false, true}) {
      auto inputs = inputs_at(example, program.dims, dims);
      if (other) inputs = with_other_values(std::move(inputs));
      again();
      std::vector<at::Tensor> wanted, found;
      try {
        wanted = forward(inputs);
      } catch (const c10::Error& error) {
        throw ExportError(message("the forward fails", text_of(program, dims),
                                  ", which its DynamicDim allows: limit it by min and max. LibTorch says: ",
                                  error.what_without_backtrace()));
      }
      again();
      try {
        found = run(inputs);
      } catch (const c10::Error& error) {
        throw ExportError(message("the program fails", text_of(program, dims),
                                  " where the forward does not: ", error.what_without_backtrace()));
      }
      const auto repeat = [&](std::size_t output) {
        again();
        return forward(inputs).at(output);
      };
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (!has_equal_values(wanted[i], found.at(i)) &&
            !is_own_noise(wanted[i], found[i], [&] { return repeat(i); }))
          throw ExportError(message("output ", i, " of the program differs from the forward's",
                                    text_of(program, dims), other ? ", for other values" : "",
                                    ": the forward reads something that no operator shows, such as values of "
                                    "its inputs by a pointer, or takes another path there"));
    }
  }
}

}  // namespace looptorch::detail
