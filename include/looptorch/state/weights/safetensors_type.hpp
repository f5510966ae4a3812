// SPDX-License-Identifier: MIT
// Maps the element types of safetensors, such as "BF16", to LibTorch's. Include safetensors.hpp instead.
#pragma once

#include <looptorch/base/libtorch_version.hpp>

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace looptorch {

/// An element type and its name in the format. `bits` are those of one element of the file's shape.
struct SafetensorsType {
  std::string_view name;
  at::ScalarType scalar_type;
  std::uint64_t bits;
};

namespace detail {

/// All types, in the order in which Python's safetensors lays tensors out, which keeps every tensor aligned.
inline constexpr std::array kSafetensorsTypes{
    SafetensorsType{"U64", at::kUInt64, 64},
    SafetensorsType{"I64", at::kLong, 64},
    SafetensorsType{"F64", at::kDouble, 64},
    SafetensorsType{"C64", at::kComplexFloat, 64},
    SafetensorsType{"F32", at::kFloat, 32},
    SafetensorsType{"U32", at::kUInt32, 32},
    SafetensorsType{"I32", at::kInt, 32},
    SafetensorsType{"BF16", at::kBFloat16, 16},
    SafetensorsType{"F16", at::kHalf, 16},
    SafetensorsType{"U16", at::kUInt16, 16},
    SafetensorsType{"I16", at::kShort, 16},
    SafetensorsType{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz, 8},
    SafetensorsType{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz, 8},
    SafetensorsType{"F8_E8M0", at::kFloat8_e8m0fnu, 8},
    SafetensorsType{"F8_E4M3", at::kFloat8_e4m3fn, 8},
    SafetensorsType{"F8_E5M2", at::kFloat8_e5m2, 8},
    SafetensorsType{"I8", at::kChar, 8},
    SafetensorsType{"U8", at::kByte, 8},
    SafetensorsType{"F4", kFloat4, 4},
    SafetensorsType{"BOOL", at::kBool, 8},
};

template <class Matches>
[[nodiscard]] const SafetensorsType* find_safetensors_type_if(Matches matches) {
  const auto* found = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(), matches);
  return found == kSafetensorsTypes.end() ? nullptr : found;
}

[[nodiscard]] inline const SafetensorsType* find_safetensors_type(std::string_view name) {
  return find_safetensors_type_if([&](const SafetensorsType& type) { return type.name == name; });
}

[[nodiscard]] inline const SafetensorsType* find_safetensors_type(at::ScalarType scalar_type) {
  return find_safetensors_type_if(
      [&](const SafetensorsType& type) { return type.scalar_type == scalar_type; });
}

/// Returns the tensor's shape. LibTorch keeps two F4 in an element, so its last dimension is half of the
/// file's.
[[nodiscard]] inline std::vector<std::int64_t> shape_in_torch(const SafetensorsType& type,
                                                              std::vector<std::int64_t> shape) {
  if (type.bits < 8) shape.back() /= 2;
  return shape;
}

[[nodiscard]] inline std::vector<std::int64_t> shape_in_file(const SafetensorsType& type,
                                                             std::vector<std::int64_t> shape) {
  if (type.bits < 8) shape.back() *= 2;
  return shape;
}

}  // namespace detail
}  // namespace looptorch
