// SPDX-License-Identifier: MIT
// Implements JsonObject, the keys and values of a JSON object in their order, with a hash index that keeps
// look-ups in large objects fast. Include json.hpp instead.
#pragma once

#include <looptorch/base/hash/keyed_hash.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/tensors/visit_held.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {
/// Up to this many members a scan is faster than a hash table and needs no further memory.
inline constexpr std::size_t kJsonScanLimit = 16;
inline constexpr std::size_t kJsonAbsent = static_cast<std::size_t>(-1);
}  // namespace detail

inline std::size_t JsonObject::size() const { return members_.size(); }
inline std::vector<JsonMember>::const_iterator JsonObject::begin() const { return members_.begin(); }
inline std::vector<JsonMember>::const_iterator JsonObject::end() const { return members_.end(); }

inline std::size_t JsonObject::position(std::string_view key) const {
  if (slots_.empty()) {
    const auto found =
        std::find_if(begin(), end(), [&](const JsonMember& member) { return member.first == key; });
    return found == end() ? detail::kJsonAbsent : static_cast<std::size_t>(found - begin());
  }
  const std::size_t mask = slots_.size() - 1;
  for (auto slot = keyed_hash(key) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (members_[slots_[slot] - 1].first == key) return slots_[slot] - 1;
  }
  return detail::kJsonAbsent;
}

inline void JsonObject::index(std::size_t member) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = keyed_hash(members_[member].first) & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = static_cast<std::uint32_t>(member + 1);
}

inline void JsonObject::rebuild_index(std::size_t slots) {
  slots_.assign(slots, 0);
  for (std::size_t member = 0; member < members_.size(); ++member) index(member);
}

inline const Json* JsonObject::find(std::string_view key) const {
  const auto member = position(key);
  return member == detail::kJsonAbsent ? nullptr : &members_[member].second;
}

inline Json* JsonObject::find(std::string_view key) {
  return const_cast<Json*>(std::as_const(*this).find(key));
}

inline bool JsonObject::insert(std::string key, Json value) {
  if (find(key)) return false;
  members_.emplace_back(std::move(key), std::move(value));
  if (members_.size() * 2 > std::max(slots_.size(), 2 * detail::kJsonScanLimit)) {
    rebuild_index(std::max(slots_.size() * 2, 8 * detail::kJsonScanLimit));
  } else if (!slots_.empty()) {
    index(members_.size() - 1);
  }
  return true;
}

inline bool operator==(const JsonObject& a, const JsonObject& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const JsonMember& member) {
           const Json* other = b.find(member.first);
           return other && *other == member.second;
         });
}

inline bool operator==(const Json& a, const Json& b) {
  return a.value_.index() == b.value_.index() &&
         detail::visit_held([&]<class T>(const T& value) { return value == std::get<T>(b.value_); },
                            a.value_);
}

inline const char* Json::kind() const {
  static constexpr std::array kNames{"null",     "a boolean", "an integer", "a number",
                                     "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

inline double Json::as_number() const {
  return is_int() ? static_cast<double>(as_int()) : get_as<double>("a number");
}

inline const Json& Json::at(std::string_view key) const {
  if (const Json* value = as_object().find(key)) return *value;
  throw JsonError(message("key \"", key, "\" is missing"));
}

inline const Json& Json::at(std::size_t index) const {
  if (index < as_array().size()) return as_array()[index];
  throw JsonError(message("element ", index, " is missing: the array has ", as_array().size()));
}

inline Json Json::get(std::string_view key, Json fallback) const {
  const Json* value = as_object().find(key);
  return value ? *value : std::move(fallback);
}

inline Json& Json::set(std::string_view key, Json value) {
  (void)as_object();
  auto& object = std::get<JsonObject>(value_);
  if (Json* present = object.find(key)) {
    *present = std::move(value);
  } else {
    object.insert(std::string(key), std::move(value));
  }
  return *this;
}

inline Json& Json::push_back(Json value) {
  (void)as_array();
  std::get<JsonArray>(value_).push_back(std::move(value));
  return *this;
}

}  // namespace looptorch
