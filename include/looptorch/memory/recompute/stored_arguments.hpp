// SPDX-License-Identifier: MIT
// Stores a checkpointed block's arguments until the block runs again. Copies the elements of an ArrayRef or a
// string_view, since these types only refer to their elements.
#pragma once

#include <looptorch/data/batch/batch.hpp>

#include <c10/util/ArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The type in which an argument of type T, without its reference, is stored.
template <class T>
struct StoredAs {
  using type = T;
};
template <class T>
struct StoredAs<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};
template <class T>
struct StoredAs<c10::OptionalArrayRef<T>> {
  using type = std::optional<std::vector<T>>;
};
template <class T, std::size_t N>
struct StoredAs<std::span<T, N>> {
  using type = std::vector<std::remove_cv_t<T>>;
};
template <>
struct StoredAs<std::string_view> {
  using type = std::string;
};
template <std::size_t N>
struct StoredAs<char[N]> {
  using type = std::string;
};
template <class T>
requires(!std::is_same_v<typename StoredAs<T>::type, T>) struct StoredAs<std::optional<T>> {
  using type = std::optional<typename StoredAs<T>::type>;
};
template <class Argument>
using stored_t = typename StoredAs<std::remove_cvref_t<Argument>>::type;

template <class Argument>
[[nodiscard]] stored_t<Argument> store(const std::remove_cvref_t<Argument>& argument) {
  using T = std::remove_cvref_t<Argument>;
  using Stored = stored_t<Argument>;
  if constexpr (std::is_constructible_v<Stored, const T&>)
    return Stored(argument);
  else if constexpr (std::is_constructible_v<bool, const T&>)
    return argument ? Stored(std::in_place, argument->begin(), argument->end()) : Stored();
  else
    return Stored(argument.begin(), argument.end());
}

/// Converts a stored copy back to the argument that the block was given.
template <class Argument>
decltype(auto) given(stored_t<Argument>& stored) {
  using T = std::remove_cvref_t<Argument>;
  if constexpr (std::is_same_v<stored_t<Argument>, T>)
    return static_cast<Argument&&>(stored);
  else if constexpr (std::is_array_v<T>)
    return stored.c_str();
  else
    return T(stored);
}

/// Calls `visit` with each defined tensor in the arguments.
template <class Tuple, class Visit>
void for_each_argument_tensor(Tuple& arguments, Visit&& visit) {
  const auto of_one = [&](auto& argument) {
    if constexpr (BatchLike<std::remove_cvref_t<decltype(argument)>>)
      for_each_tensor(argument, [&](auto& tensor) {
        if (tensor.defined()) visit(tensor);
      });
  };
  std::apply([&](auto&... argument) { (of_one(argument), ...); }, arguments);
}

}  // namespace looptorch::detail
