// SPDX-License-Identifier: MIT
// Names a program's outputs after the containers that Python returned them in: "logits" for a dictionary or a
// ModelOutput, "hidden_states.0" for a tuple within one.
#pragma once

#include <looptorch/base/json/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace looptorch::detail::exported {

/// Returns the keys of a node of a tree; empty if it has none, as a tuple.
[[nodiscard]] inline std::vector<std::string> keys_of(const Json& context, std::size_t children) {
  if (!context.is_string()) return {};
  Json held;
  try {
    held = Json::parse(context.as_string());
  } catch (const JsonError&) {
    return {};
  }
  // A dictionary's context are its keys; those of registered classes may hold them within.
  if (held.is_array() && !held.as_array().empty() && held.at(0).is_array()) held = Json(held.at(0));
  if (!held.is_array() || held.as_array().size() != children) return {};
  std::vector<std::string> keys;
  for (const Json& key : held.as_array()) {
    if (!key.is_string()) return {};
    keys.push_back(key.as_string());
  }
  return keys;
}

inline void add_leaves(const Json& tree, const std::string& path, std::vector<std::string>& names) {
  const auto& children = tree.at("children_spec").as_array();
  if (tree.at("type").is_null()) return names.push_back(path.empty() ? "output" : path);
  const auto keys = keys_of(tree.at("context"), children.size());
  for (std::size_t i = 0; i < children.size(); ++i)
    add_leaves(children[i], (path.empty() ? "" : path + ".") + (keys.empty() ? std::to_string(i) : keys[i]),
               names);
}

/// Returns a name for each of `count` values that `spec` packs, "0", "1", ... if it packs others. Throws
/// JsonError.
[[nodiscard]] inline std::vector<std::string> leaf_names(const std::string& spec, std::size_t count) {
  std::vector<std::string> names;
  add_leaves(Json::parse(spec).at(1), "", names);
  if (names.size() == count) return names;
  names.clear();
  for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace looptorch::detail::exported
