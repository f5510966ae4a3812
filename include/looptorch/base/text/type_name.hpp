// SPDX-License-Identifier: MIT
// Returns the names of types as the compiler spells them, for messages.
#pragma once

#include <cstddef>
#include <string_view>

namespace looptorch::detail {

/// Returns this function's name as the compiler spells it, which contains the name of T.
template <class T>
constexpr std::string_view spelled_type() {
  return __PRETTY_FUNCTION__;
}

/// Returns T's name as a user reads it in a message. (The header of c10::util::get_fully_qualified_type_name
/// takes five times as long to parse as this one.)
template <class T>
constexpr std::string_view type_name() {
  constexpr std::string_view spelled = spelled_type<T>();
  constexpr auto begin = spelled.find("T = ") + 4;
  std::size_t end = begin;
  for (int open = 0; open > 0 || (spelled[end] != ';' && spelled[end] != ']'); ++end)  // T may have arrays
    open += spelled[end] == '[' ? 1 : spelled[end] == ']' ? -1 : 0;
  return spelled.substr(begin, end - begin);
}

/// Returns the name of a type without its namespace and its arguments: "Accumulate" of
/// "looptorch::Accumulate<4>".
constexpr std::string_view short_name(std::string_view type) {
  type = type.substr(0, type.find('<'));
  const auto colon = type.rfind(':');
  return colon == type.npos ? type : type.substr(colon + 1);
}

}  // namespace looptorch::detail
