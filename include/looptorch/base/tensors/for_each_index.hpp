// SPDX-License-Identifier: MIT
// Calls a function with 0, 1, ..., N - 1, each as a compile-time constant: a loop over the elements of a
// tuple, such as the updates or the policies of a Trainer.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// Calls `visit(constant)` for 0, 1, ..., N - 1 as compile-time constants.
template <std::size_t N, class Visit>
constexpr void for_each_index([[maybe_unused]] Visit&& visit) {
  [&]<std::size_t... I>(std::index_sequence<I...>) { (visit(std::integral_constant<std::size_t, I>{}), ...); }
  (std::make_index_sequence<N>{});
}

}  // namespace looptorch::detail
