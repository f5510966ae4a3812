// SPDX-License-Identifier: MIT
// Converts a StateDict's numbers and texts to JSON and back, bit for bit. The StateDict's tensors are stored
// in another file.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/json/json_hex.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/state/weights/safetensors_layout.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// Encodes values that JSON lacks: {"double": bits} for a number that is not finite, {"bytes": hexadecimal}
/// for a text that is not UTF-8, null for an undefined tensor.
struct StateValueToJson {
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const {
    if (std::isfinite(value)) return value;
    return wrapped("double", hex_of(std::bit_cast<std::uint64_t>(value)));
  }
  Json operator()(const std::string& value) const {
    if (find_invalid_utf8(value) == std::string_view::npos) return value;
    return wrapped("bytes", hex_of_bytes(value));
  }
  Json operator()(const at::Tensor&) const { return nullptr; }

  static Json wrapped(const char* kind, std::string text) {
    return std::move(Json::object().set(kind, std::move(text)));
  }
};

[[nodiscard]] inline StateDict::Value state_value_from(const Json& json) {
  if (json.is_null()) return at::Tensor();
  if (json.is_bool()) return json.as_bool();
  if (json.is_int()) return json.as_int();
  if (json.is_number()) return json.as_number();
  if (json.is_string()) return json.as_string();
  const auto& members = json.as_object();
  if (members.size() != 1) throw JsonError("is no value of a state");
  if (const Json* bytes = members.find("bytes")) return bytes_from_hex(*bytes);
  return std::bit_cast<double>(number_from_hex(json.at("double")));
}

/// Returns the tensors of a state, which a JSON text cannot hold.
[[nodiscard]] inline TensorMap tensors_of(const StateDict& state) {
  TensorMap tensors;
  for (const auto& [key, value] : state.values()) {
    if (const auto* tensor = value.get_if<at::Tensor>(); tensor && tensor->defined()) {
      tensors.emplace(key, *tensor);
    }
  }
  return tensors;
}

/// Throws JsonError for a key that is not UTF-8, which the message shows as far as possible.
inline void check_key(const std::string& key) {
  if (find_invalid_utf8(key) != std::string_view::npos) {
    throw JsonError(message("the name \"", replace_invalid_utf8(key), "\" is not UTF-8"));
  }
}

/// Returns everything but the tensors. Throws JsonError for a key that is not UTF-8.
[[nodiscard]] inline Json numbers_of(const StateDict& state) {
  JsonObject members;
  for (const auto& [key, value] : state.values()) {
    check_key(key);
    const auto* tensor = value.get_if<at::Tensor>();
    if (!tensor || !tensor->defined()) members.insert(key, value.visit(StateValueToJson{}));
  }
  return members;
}

/// Adds the values that numbers_of returned. Throws JsonError that names the key.
inline void add_numbers(StateDict& state, const Json& json) {
  for (const auto& [key, value] : json.as_object()) {
    try {
      state.set(key, state_value_from(value));
    } catch (const JsonError& error) {
      throw JsonError(message("\"", key, "\": ", error.what()));
    }
  }
}

}  // namespace looptorch::detail
