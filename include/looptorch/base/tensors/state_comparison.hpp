// SPDX-License-Identifier: MIT
// Compares a saved StateDict with the current one, value by value, and tensors element by element on the
// host. A resume uses it to find settings that differ from the snapshot's, and describes each in a sentence:
// "batch_size is 2 here, 4 in the snapshot".
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

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

/// One step of loading a state, already checked. All steps are checked before the first is made.
using Commit = std::function<void()>;

inline bool same_value(const StateDict::Value& a, const StateDict::Value& b) {
  if (!a.same_type(b)) return false;
  return a.visit([&b]<class T>(const T& it) {
    const T& other = *b.template get_if<T>();
    if constexpr (std::is_same_v<T, at::Tensor>)
      return it.sizes() == other.sizes() && it.scalar_type() == other.scalar_type() &&
             at::equal(it.cpu(), other.cpu());
    else
      return it == other;
  });
}

/// A value that differs between two states, as text; "nothing" where one of them lacks it.
struct DifferentValue {
  std::string key, here, saved;
};

/// Returns each key whose values differ, or that only one side has.
[[nodiscard]] inline std::vector<DifferentValue> differing_values(const StateDict& here,
                                                                  const StateDict& saved) {
  const auto text = [](const StateDict& in, const std::string& key) {
    return in.contains(key) ? value_text(in.values().at(key)) : "nothing";
  };
  std::set<std::string> keys;
  for (const auto& item : here.values()) keys.insert(item.first);
  for (const auto& item : saved.values()) keys.insert(item.first);
  std::vector<DifferentValue> different;
  for (const std::string& key : keys)
    if (!here.contains(key) || !saved.contains(key) ||
        !same_value(here.values().at(key), saved.values().at(key)))
      different.push_back({key, text(here, key), text(saved, key)});
  return different;
}

/// Returns "batch_size is 2 here, 4 in the snapshot". `of` stands before the key; `there` names the other
/// side.
[[nodiscard]] inline std::string sentence(const DifferentValue& value, const std::string& of,
                                          const char* there) {
  return message(of, value.key, " is ", value.here, " here, ", value.saved, " in ", there);
}

/// Returns such a sentence for each value that differs.
[[nodiscard]] inline std::vector<std::string> compare_values(const StateDict& here, const StateDict& saved,
                                                             const std::string& of, const char* there) {
  std::vector<std::string> differences;
  for (const DifferentValue& value : differing_values(here, saved))
    differences.push_back(sentence(value, of, there));
  return differences;
}

/// Returns the texts with the separator between them: "a, b". c10::Join would need another header.
[[nodiscard]] inline std::string joined(const std::vector<std::string>& texts, const char* separator) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : separator) + text;
  return all;
}

}  // namespace looptorch::detail
