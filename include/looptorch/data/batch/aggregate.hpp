// SPDX-License-Identifier: MIT
// Gives access to the fields of a plain aggregate, up to kMaxFields of them, by structured binding. So a
// user's batch type needs no macro and no base class.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

inline constexpr std::size_t kMaxFields = 16;

/// Stands in for any field in an unevaluated brace initialisation.
struct AnyField {
  template <class T>
  constexpr operator T&() const& noexcept;
  template <class T>
  constexpr operator T&&() const&& noexcept;
};

template <class T, std::size_t... I>
constexpr bool constructible_from_fields(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyField{})...}; };
}

template <class T, std::size_t N>
constexpr std::size_t count_fields() {
  if constexpr (constructible_from_fields<T>(std::make_index_sequence<N>{}))
    return N;
  else if constexpr (N == 0)
    return 0;
  else
    return count_fields<T, N - 1>();
}

template <class T>
inline constexpr std::size_t kFieldCount = count_fields<T, kMaxFields + 1>();

/// An aggregate that visit_fields can take apart.
template <class T>
concept KnownAggregate = std::is_aggregate_v<T> && !std::is_array_v<T> && kFieldCount<T> <= kMaxFields;

/// Calls `use` with references to all fields of `value`.
template <KnownAggregate T, class U, class Use>
constexpr decltype(auto) with_fields(U& value, Use&& use) {
  constexpr std::size_t n = kFieldCount<T>;
  if constexpr (n == 0) {
    return use();
  } else if constexpr (n == 1) {
    auto& [f0] = value;
    return use(f0);
  } else if constexpr (n == 2) {
    auto& [f0, f1] = value;
    return use(f0, f1);
  } else if constexpr (n == 3) {
    auto& [f0, f1, f2] = value;
    return use(f0, f1, f2);
  } else if constexpr (n == 4) {
    auto& [f0, f1, f2, f3] = value;
    return use(f0, f1, f2, f3);
  } else if constexpr (n == 5) {
    auto& [f0, f1, f2, f3, f4] = value;
    return use(f0, f1, f2, f3, f4);
  } else if constexpr (n == 6) {
    auto& [f0, f1, f2, f3, f4, f5] = value;
    return use(f0, f1, f2, f3, f4, f5);
  } else if constexpr (n == 7) {
    auto& [f0, f1, f2, f3, f4, f5, f6] = value;
    return use(f0, f1, f2, f3, f4, f5, f6);
  } else if constexpr (n == 8) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7);
  } else if constexpr (n == 9) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8);
  } else if constexpr (n == 10) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9);
  } else if constexpr (n == 11) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
  } else if constexpr (n == 12) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
  } else if constexpr (n == 13) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
  } else if constexpr (n == 14) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13);
  } else if constexpr (n == 15) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14);
  } else if constexpr (n == 16) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = value;
    return use(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15);
  }
}

template <class U, class Visit>
constexpr void visit_fields(U& value, Visit&& visit) {
  with_fields<std::remove_const_t<U>>(value, [&](auto&... field) { (visit(field), ...); });
}

/// Ties the fields of `value` to a tuple of references.
template <KnownAggregate T, class U>
constexpr auto tie_fields(U& value) {
  return with_fields<T>(value, [](auto&... field) { return std::tie(field...); });
}

template <class T>
using field_types_t = decltype(tie_fields<T>(std::declval<T&>()));

}  // namespace looptorch::detail
