// SPDX-License-Identifier: MIT
// Saves a list of names in a StateDict, under the keys `key.size`, `key.0`, `key.1` and so on.
#pragma once

#include <looptorch/base/state_dict.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace looptorch::detail {

inline void put_names(StateDict& out, const std::string& key, const std::vector<std::string>& names) {
  out.set(key + ".size", names.size());
  for (std::size_t i = 0; i < names.size(); ++i) out.set(key + "." + std::to_string(i), names[i]);
}
inline std::vector<std::string> names_under(const StateDict& in, const std::string& key) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < in.get<std::int64_t>(key + ".size"); ++i)
    names.push_back(in.get<std::string>(key + "." + std::to_string(i)));
  return names;
}

}  // namespace looptorch::detail
