// SPDX-License-Identifier: MIT
// Describes a sampler and its settings in one line. Snapshots save this line, so that a resumed run finds
// whether its order of samples would differ.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/data/batch/aggregate.hpp>

#include <c10/util/Type.h>

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

namespace looptorch::detail {

template <class T>
concept DescribedSampler = requires(const T& sampler) {
  { sampler.identity() } -> std::convertible_to<std::string>;
};

/// Returns the shortest text that reads back as this number.
template <std::floating_point Number>
std::string exact_text(Number number) {
  std::array<char, 64> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

/// Returns a field of an aggregate as text, if it has one.
template <class Field>
std::string field_text(const Field& field) {
  if constexpr (std::is_enum_v<Field>)
    return message(+static_cast<std::underlying_type_t<Field>>(field));  // + : a char is a number here
  else if constexpr (std::is_floating_point_v<Field>)
    return exact_text(field);
  else if constexpr (std::is_arithmetic_v<Field>)
    return message(+field);
  else if constexpr (std::is_convertible_v<const Field&, std::string_view>)
    return message(field);
  else
    return "?";
}

/// Returns the sampler's own `identity()`, else its type and, for an aggregate, its numbers and strings.
template <class T>
std::string sampler_identity(const T& sampler) {
  if constexpr (DescribedSampler<T>) {
    return sampler.identity();
  } else {
    std::string text = c10::demangle(typeid(T).name());
    if constexpr (KnownAggregate<T>)
      visit_fields(sampler, [&text](const auto& field) { text += ", " + field_text(field); });
    return text;
  }
}

/// Returns a checksum that distinguishes lists of numbers.
template <class Number>
std::uint64_t checksum_of(std::span<const Number> numbers) {
  Checksum sum;
  sum.add(numbers.data(), numbers.size_bytes());
  return sum.value();
}

}  // namespace looptorch::detail
