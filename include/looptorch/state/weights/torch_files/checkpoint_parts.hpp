// SPDX-License-Identifier: MIT
// Finds the dictionaries of tensors in a Python checkpoint by their keys, and chooses the one with the
// model's weights. Copies no tensor. Include torch_checkpoint.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/state/weights/torch_files/pickle.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// The tensors of a checkpoint, a dictionary that torch.save wrote: its own values, and those of dictionaries
/// in it.
struct CheckpointParts {
  TensorMap own;
  std::map<std::string, TensorMap> within;  ///< by keys, as "generator"; only those with tensors
  std::vector<std::string> keys;            ///< all keys whose values are no tensors, in the file's order

  /// Returns `keys` except those in `read`.
  [[nodiscard]] std::vector<std::string> beside(const std::vector<std::string>& read) const {
    std::vector<std::string> others;
    for (const std::string& key : keys)
      if (std::find(read.begin(), read.end(), key) == read.end()) others.push_back(key);
    return others;
  }
};

namespace detail {

/// Calls `use(key, value)` for each item of a dictionary with a text as key.
template <class Use>
void for_each_item(const PickleValue& dictionary, Use&& use) {
  if (!dictionary.is(PickleValue::Kind::dict)) return;
  const std::vector<PickleValue>& items = dictionary.object->items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].is(PickleValue::Kind::text)) use(items[i].object->text, items[i + 1]);
}

/// Returns the tensors that are a dictionary's own values.
[[nodiscard]] inline TensorMap tensors_in(const PickleValue& dictionary) {
  TensorMap tensors;
  for_each_item(dictionary, [&](const std::string& name, const PickleValue& value) {
    if (value.is(PickleValue::Kind::tensor)) tensors.insert_or_assign(name, value.object->tensor);
  });
  return tensors;
}

[[nodiscard]] inline CheckpointParts parts_of(const PickleValue& root) {
  CheckpointParts parts{.own = tensors_in(root), .within = {}, .keys = {}};
  for_each_item(root, [&](const std::string& key, const PickleValue& value) {
    if (value.is(PickleValue::Kind::tensor)) return;
    parts.keys.push_back(key);
    if (TensorMap tensors = tensors_in(value); !tensors.empty())
      parts.within.insert_or_assign(key, std::move(tensors));
  });
  return parts;
}

/// True if the top level is a model's weights and `nested` something beside them, such as their average: it
/// has all names of `nested`, or more tensors, scalars aside.
[[nodiscard]] inline bool are_own(const CheckpointParts& parts, const TensorMap& nested) {
  const auto is_weight = [](const auto& item) { return item.second.dim() > 0; };
  const auto is_own = [&](const auto& item) { return !is_weight(item) || parts.own.contains(item.first); };
  return std::ranges::count_if(parts.own, is_weight) > std::ranges::count_if(nested, is_weight) ||
         (!parts.own.empty() && std::ranges::all_of(nested, is_own));
}

/// Returns the key of a model's weights: `inside`, or if that is empty the usual or the only one; empty if
/// they are at the top level. Throws PickleError if there is no such key, or more than one.
[[nodiscard]] inline std::string choose_part(const CheckpointParts& parts, const std::string& inside) {
  constexpr std::array<std::string_view, 11> kUsual = {
      "model_state_dict", "state_dict", "model",   "model_state", "module", "net",
      "network",          "generator",  "weights", "params",      "ema"};
  std::string keys;
  for (const auto& [key, tensors] : parts.within) keys += message(keys.empty() ? "" : ", ", '"', key, '"');
  if (!inside.empty()) {
    if (parts.within.contains(inside)) return inside;
    throw PickleError(
        message("has no tensors under \"", inside, "\"", keys.empty() ? "" : "; it has some under " + keys));
  }
  for (const std::string_view key : kUsual)
    if (const auto found = parts.within.find(std::string(key)); found != parts.within.end())
      return are_own(parts, found->second) ? std::string() : found->first;
  if (!parts.own.empty()) return {};
  if (parts.within.size() == 1) return parts.within.begin()->first;
  throw PickleError(parts.within.empty()
                        ? std::string("holds no dictionary of tensors")
                        : message("has tensors under several keys, ", keys, ": name one of them"));
}

}  // namespace detail
}  // namespace looptorch
