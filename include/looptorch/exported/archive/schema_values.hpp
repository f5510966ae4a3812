// SPDX-License-Identifier: MIT
// Converts values in torch.export's JSON, schema version 8, to LibTorch's: dtypes, layouts, memory formats,
// devices, numbers.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/export/files/pt2_schema.hpp>
#include <looptorch/exported/archive/exported_error.hpp>

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <limits>

namespace looptorch::detail::exported {

[[nodiscard]] inline at::ScalarType dtype_of(const Json& json) {
  switch (const auto number = json.as_int()) {
    case 13:
      return at::kBFloat16;
    case 28:
      return at::kUInt16;
    case 29:
      return at::kFloat8_e4m3fn;
    case 30:
      return at::kFloat8_e5m2;
    case 31:
      return at::kFloat8_e4m3fnuz;
    case 32:
      return at::kFloat8_e5m2fnuz;
    default:  // 1 to 12 are LibTorch's own, from Byte to Bool
      if (number < 1 || number > 12) throw ExportedModelError(message("has a dtype of the number ", number));
      return static_cast<at::ScalarType>(number - 1);
  }
}

[[nodiscard]] inline at::Layout layout_of(const Json& json) {
  if (json.as_int() != pt2::kStrided)
    throw ExportedModelError("has a tensor that is not strided: sparse layouts are not supported");
  return at::kStrided;
}

[[nodiscard]] inline at::MemoryFormat memory_format_of(const Json& json) {
  using at::MemoryFormat;
  for (const auto format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast,
                            MemoryFormat::ChannelsLast3d, MemoryFormat::Preserve})
    if (pt2::memory_format_number(format).as_int() == json.as_int()) return format;
  throw ExportedModelError(message("has a memory format of the number ", json.as_int()));
}

[[nodiscard]] inline at::Device device_of(const Json& json) {
  try {
    at::Device device(json.at("type").as_string());
    const Json index = json.get("index", nullptr);
    if (index.is_int()) {
      if (index.as_int() < 0 || index.as_int() > 127)
        throw ExportedModelError("has a device without a number");
      device.set_index(static_cast<c10::DeviceIndex>(index.as_int()));
    }
    return device;
  } catch (const c10::Error&) {
    throw ExportedModelError("has a device of the type \"" + json.at("type").as_string() + '"');
  }
}

/// Returns a double; the schema spells infinities and NaN as texts.
[[nodiscard]] inline double number_of(const Json& json) {
  if (!json.is_string()) return json.as_number();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.as_string() == "Infinity") return kInfinity;
  if (json.as_string() == "-Infinity") return -kInfinity;
  if (json.as_string() == "NaN") return std::numeric_limits<double>::quiet_NaN();
  throw ExportedModelError("has the number \"" + json.as_string() + '"');
}

}  // namespace looptorch::detail::exported
