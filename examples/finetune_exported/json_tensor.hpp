// SPDX-License-Identifier: MIT
// Converts a JSON number or nested lists of numbers to a tensor, for samples in a .jsonl file.
#pragma once

#include <looptorch/base/json/json.hpp>

#include "check_fits.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace finetune_exported {

/// The numbers in nested lists, and the sizes of the lists.
class ListedNumbers {
 public:
  /// Keeps references into `value`. Throws DataError, which begins with `what`, unless `value` is a number,
  /// or nested lists of numbers with equal lengths.
  ListedNumbers(const std::string& what, const lt::Json& value) : what_(what) { add(value, 0); }

  [[nodiscard]] bool are_whole() const {
    return std::ranges::all_of(numbers_, [](const lt::Json* number) { return number->is_int(); });
  }
  [[nodiscard]] at::Tensor whole() const {
    return filled<std::int64_t>(at::kLong, [](const lt::Json* number) { return number->as_int(); });
  }
  [[nodiscard]] at::Tensor fractions() const {
    return filled<double>(at::kDouble, [](const lt::Json* number) { return number->as_number(); });
  }

 private:
  template <class Number, class Read>
  [[nodiscard]] at::Tensor filled(at::ScalarType type, const Read& read) const {
    at::Tensor tensor = at::empty(sizes_, type);
    std::ranges::transform(numbers_, tensor.mutable_data_ptr<Number>(), read);
    return tensor;
  }
  [[noreturn]] void fail(const std::string& why) const { throw DataError(what_ + why); }

  void add(const lt::Json& value, std::size_t depth) {
    if (value.is_array()) return add_list(value.as_array(), depth);
    if (!value.is_number()) fail(std::string(" holds ") + value.kind() + ", where a number should be");
    if (depth != sizes_.size()) fail(" has a number beside a list");
    numbers_.push_back(&value);
  }
  void add_list(const lt::JsonArray& items, std::size_t depth) {
    if (depth == sizes_.size() && !numbers_.empty()) fail(" has a number beside a list");
    if (depth == sizes_.size()) sizes_.push_back(std::ssize(items));
    if (sizes_[depth] != std::ssize(items)) fail(" has lists of different lengths");
    for (const auto& item : items) add(item, depth + 1);
  }

  std::string what_;
  std::vector<std::int64_t> sizes_;
  std::vector<const lt::Json*> numbers_;
};

/// Returns the numbers as `dtype` if it is a floating type. Otherwise returns them as Long if all are whole
/// (1.0 is not), else as Float. Throws DataError, which begins with `what`.
inline at::Tensor json_tensor(const std::string& what, const lt::Json& value,
                              std::optional<at::ScalarType> dtype) {
  const ListedNumbers numbers(what, value);
  if (dtype && at::isFloatingType(*dtype)) return numbers.fractions().to(*dtype);
  return numbers.are_whole() ? numbers.whole() : numbers.fractions().to(at::kFloat);
}

}  // namespace finetune_exported
