// SPDX-License-Identifier: MIT
// Converts an operator's constant arguments to torch.export's JSON.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/export/files/pt2_schema.hpp>
#include <looptorch/export/program/export_error.hpp>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <utility>

namespace looptorch::detail::pt2 {

template <class List, class ToJson>
[[nodiscard]] Json list(const char* key, const List& values, const ToJson& to_json) {
  Json all = Json::array();
  for (const auto& value : values) all.push_back(to_json(value));
  return one(key, std::move(all));
}

/// Returns a constant by its own type. Throws ExportError.
[[nodiscard]] inline Json plain(const c10::IValue& value, const c10::Argument& declared,
                                const std::string& op) {
  const auto same = [](auto each) { return Json(each); };
  if (value.isBool()) return one("as_bool", value.toBool());
  if (value.isInt()) return one("as_int", value.toInt());
  if (value.isDouble()) return one("as_float", number(value.toDouble()));
  if (value.isString()) return one("as_string", value.toStringRef());
  if (value.isDevice()) return one("as_device", device_of(value.toDevice()));
  if (value.isIntList()) return list("as_ints", value.toIntVector(), same);
  if (value.isDoubleList()) return list("as_floats", value.toDoubleVector(), number);
  if (value.isBoolList()) {
    Json flags = Json::array();
    for (const bool flag : value.toBoolList()) flags.push_back(flag);
    return one("as_bools", std::move(flags));
  }
  throw ExportError(op, declared.name(),
                    "is of the type " + value.tagKind() + ", which has no place in a .pt2");
}

/// Returns a constant by the type that the operator declares. Throws ExportError.
[[nodiscard]] inline Json constant(const c10::IValue& value, const c10::Argument& declared,
                                   const std::string& op) {
  if (value.isNone()) return one("as_none", true);
  auto type = declared.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
      return one("as_scalar_type", dtype_number(value.toScalarType()));
    case c10::TypeKind::LayoutType:
      if (value.toLayout() == at::kStrided) return one("as_layout", kStrided);
      throw ExportError(op, declared.name(), "is a layout that is not strided");
    case c10::TypeKind::MemoryFormatType:
      return one("as_memory_format", memory_format_number(value.toMemoryFormat()));
    case c10::TypeKind::FloatType:
      return one("as_float", number(value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble()));
    default:
      return plain(value, declared, op);
  }
}

}  // namespace looptorch::detail::pt2
