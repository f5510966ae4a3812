// SPDX-License-Identifier: MIT
// Formats a value of a state for messages.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>

#include <ATen/core/Tensor.h>

#include <string>
#include <type_traits>

namespace looptorch::detail {

inline std::string value_text(const StateDict::Value& value) {
  return value.visit([]<class T>(const T& it) {
    if constexpr (std::is_same_v<T, at::Tensor>)
      return message("a tensor ", it.sizes());
    else if constexpr (std::is_same_v<T, bool>)
      return std::string(it ? "true" : "false");
    else
      return message(it);
  });
}

}  // namespace looptorch::detail
