// SPDX-License-Identifier: MIT
// Converts single values to torch.export's JSON, schema version 8: dtypes, memory formats, devices, sizes,
// and the metadata of tensors. A size that depends on dynamic sizes becomes a sympy expression.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/polynomial.hpp>

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail::pt2 {

/// Returns an object of one member.
[[nodiscard]] inline Json one(std::string_view key, Json value) {
  return Json::object().set(key, std::move(value));
}
[[nodiscard]] inline Json object(std::vector<JsonMember> members) {
  JsonObject made;
  for (auto& [key, value] : members) made.insert(std::move(key), std::move(value));
  return made;
}

/// Returns the name by which a file lists one of its constants.
[[nodiscard]] inline std::string constant_name(std::size_t constant) {
  return "lifted_tensor_" + std::to_string(constant);
}

/// Returns a double; the schema spells infinities and NaN as texts.
[[nodiscard]] inline Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

[[nodiscard]] inline Json dtype_number(at::ScalarType type) {
  const auto position = static_cast<std::int64_t>(type);
  if (type == at::kBFloat16) return std::int64_t{13};
  if (position > static_cast<std::int64_t>(at::kBool))
    throw ExportError(message("tensors of type ", type, " have no place in a .pt2"));
  return position + 1;
}

[[nodiscard]] inline Json memory_format_number(at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::Contiguous:
      return 1;
    case at::MemoryFormat::ChannelsLast:
      return 2;
    case at::MemoryFormat::ChannelsLast3d:
      return 3;
    default:
      return 4;
  }
}

inline constexpr std::int64_t kStrided = 7;

[[nodiscard]] inline Json device_of(const at::Device& of) {
  return object({{"type", c10::DeviceTypeName(of.type(), /*lower_case=*/true)},
                 {"index", of.has_index() ? Json(std::int64_t{of.index()}) : Json(nullptr)}});
}

[[nodiscard]] inline std::string symbol(std::size_t dim) { return "s" + std::to_string(dim); }

/// Returns the expression as sympy's srepr writes it.
[[nodiscard]] inline std::string sympy(const Polynomial& polynomial) {
  const auto joined = [](const char* of, const std::vector<std::string>& parts) {
    if (parts.size() == 1) return parts[0];
    std::string text = of;
    for (const auto& part : parts) text += (&part == &parts.front() ? "(" : ", ") + part;
    return text + ")";
  };
  std::vector<std::string> terms;
  for (const auto& [monomial, factor] : polynomial.terms()) {
    std::vector<std::string> factors;
    if (factor != 1 || monomial.empty()) factors.push_back(message("Integer(", factor, ")"));
    for (const std::size_t dim : monomial)
      factors.push_back("Symbol('" + symbol(dim) + "', positive=True, integer=True)");
    terms.push_back(joined("Mul", factors));
  }
  return terms.empty() ? "Integer(0)" : joined("Add", terms);
}

/// Returns a size; `example` are the dims for its hint.
[[nodiscard]] inline Json size(const Polynomial& polynomial, const DimValues& example) {
  if (polynomial.is_constant()) return one("as_int", polynomial.constant());
  return one("as_expr",
             object({{"expr_str", sympy(polynomial)}, {"hint", one("as_int", polynomial.at(example))}}));
}

[[nodiscard]] inline Json tensor_meta(const TensorMeta& meta, const DimValues& example,
                                      std::int64_t storage_offset = 0) {
  const auto sizes = [&](const std::vector<Polynomial>& of) {
    Json all = Json::array();
    for (const auto& polynomial : of) all.push_back(size(polynomial, example));
    return all;
  };
  return object({{"dtype", dtype_number(meta.dtype)},
                 {"sizes", sizes(meta.sizes)},
                 {"requires_grad", meta.requires_grad},
                 {"device", device_of(meta.device)},
                 {"strides", sizes(meta.strides)},
                 {"storage_offset", one("as_int", storage_offset)},
                 {"layout", kStrided}});
}

[[nodiscard]] inline Json named(const std::string& name) { return one("name", name); }
[[nodiscard]] inline Json as_tensor(const std::string& name) { return one("as_tensor", named(name)); }

}  // namespace looptorch::detail::pt2
