// SPDX-License-Identifier: MIT
// Calls a function with the value that a variant holds, as `std::visit` does. Compiles faster than
// `std::visit`, since it takes one variant only and tries its types one after the other.
#pragma once

#include <cstddef>
#include <utility>
#include <variant>

namespace looptorch::detail {

/// Calls `f` with the variant's value and returns its result. Throws std::bad_variant_access for a variant
/// that holds nothing.
template <std::size_t I = 0, class F, class... Ts>
decltype(auto) visit_held(F&& f, const std::variant<Ts...>& variant) {
  if constexpr (I + 1 < sizeof...(Ts)) {
    if (const auto* held = std::get_if<I>(&variant)) return f(*held);
    return visit_held<I + 1>(std::forward<F>(f), variant);
  } else {
    return f(std::get<I>(variant));
  }
}

}  // namespace looptorch::detail
