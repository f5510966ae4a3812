// SPDX-License-Identifier: MIT
// Defines Source, the interface by which training samples are read from a file. A sample has one tensor for
// each column (columns.hpp). JsonLines and TensorFiles implement it.
#pragma once

#include "columns.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace finetune_exported {

/// Samples by index, with the place that each comes from. Safe to read from several threads.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual at::Tensor get(std::int64_t index, const Column& column) const = 0;
  /// Returns "FILE" or "FILE:LINE".
  [[nodiscard]] virtual std::string place(std::int64_t index) const = 0;
  /// Returns a text that differs for samples of other files, sizes or lines. Does not read the values of
  /// tensors and sounds.
  [[nodiscard]] virtual std::string fingerprint(std::int64_t index) const = 0;
  /// True if a sample names a sound.
  [[nodiscard]] virtual bool has_sounds() const { return false; }
};

}  // namespace finetune_exported
