// SPDX-License-Identifier: MIT
// Prepares a safetensors file before it is written: checks that the format can hold the tensors, assigns
// their offsets and makes the header. Include safetensors.hpp instead.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/state/weights/safetensors_header.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

inline const SafetensorsType* safetensors_type_of(const std::filesystem::path& path, const std::string& name,
                                                  at::ScalarType scalar_type) {
  const auto* type = find_safetensors_type(scalar_type);
  if (!type) throw_safetensors_error(path, name, "has a dtype that safetensors lacks: ", scalar_type);
  return type;
}

inline SafetensorsEntry describe_tensor(const std::filesystem::path& path, const std::string& name,
                                        const at::Tensor& tensor) {
  if (!tensor.defined()) throw_safetensors_error(path, name, "is undefined");
  if (tensor.layout() != at::kStrided || tensor.is_nested()) {
    throw_safetensors_error(path, name, "is sparse or nested, and the format holds dense tensors only");
  }
  if (tensor.is_meta()) throw_safetensors_error(path, name, "has no values (meta device)");
  const auto* type = safetensors_type_of(path, name, tensor.scalar_type());
  if (type->bits < 8 && tensor.dim() == 0)
    throw_safetensors_error(path, name, type->name, " without dimensions");
  return {name, type, shape_in_file(*type, tensor.sizes().vec())};
}

/// The memory from a tensor's first element to its last, whatever lies between them.
struct TensorSpan {
  const std::string* name;
  at::Device device;
  std::uintptr_t begin, end;
};

inline TensorSpan span_of(const std::string& name, const at::Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {&name, tensor.device(), begin, begin + static_cast<std::uintptr_t>(last + 1) * tensor.itemsize()};
}

/// Orders spans by device, then by where they begin and end.
inline bool operator<(const TensorSpan& a, const TensorSpan& b) {
  const auto key = [](const TensorSpan& span) {
    return std::array{static_cast<std::uintptr_t>(span.device.type()),
                      static_cast<std::uintptr_t>(span.device.index()), span.begin, span.end};
  };
  return key(a) < key(b);
}

/// Throws SafetensorsError for tensors that share memory, which would be written twice and come back as two.
/// Python's save_file refuses them too.
inline void check_sharing(const std::filesystem::path& path, const TensorMap& tensors) {
  std::vector<TensorSpan> spans;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) spans.push_back(span_of(name, tensor));
  }
  std::sort(spans.begin(), spans.end());
  const auto shared = std::adjacent_find(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return a.device == b.device && b.begin < a.end;
  });
  if (shared == spans.end()) return;
  throw_safetensors_error(path, *shared->name, "shares memory with \"", *std::next(shared)->name,
                          "\": leave one of them out, or save a clone");
}

/// Returns the file's type of a tensor with floating-point values converted to `dtype`; without one the
/// tensor's own.
inline at::ScalarType type_in_file(const at::Tensor& tensor, std::optional<at::ScalarType> dtype) {
  return dtype && tensor.is_floating_point() ? *dtype : tensor.scalar_type();
}

/// Returns the entries in Python's order: widest type first, then by name.
inline std::vector<SafetensorsEntry> lay_out(const std::filesystem::path& path, const TensorMap& tensors,
                                             std::optional<at::ScalarType> dtype = std::nullopt) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back(describe_tensor(path, name, tensor));
    if (dtype) entries.back().type = safetensors_type_of(path, name, type_in_file(tensor, dtype));
  }
  std::stable_sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.type < b.type; });
  std::uint64_t offset = 0;
  for (auto& entry : entries) {
    const at::Tensor& tensor = tensors.find(entry.name)->second;
    entry.begin = offset;
    entry.end = offset +=
        static_cast<std::uint64_t>(tensor.numel()) * c10::elementSize(type_in_file(tensor, dtype));
  }
  return entries;
}

inline Json entry_to_json(const SafetensorsEntry& entry) {
  auto json = Json::object();
  json.set("dtype", entry.type->name).set("shape", Json::array(entry.shape));
  json.set("data_offsets",
           Json::array({static_cast<std::int64_t>(entry.begin), static_cast<std::int64_t>(entry.end)}));
  return json;
}

inline Json header_to_json(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                           const SafetensorsMetadata& metadata) {
  JsonObject members;
  auto texts = Json::object();
  for (const auto& [key, text] : metadata) texts.set(key, text);
  if (!metadata.empty()) members.insert("__metadata__", std::move(texts));
  for (const auto& entry : entries) {
    if (entry.name == "__metadata__") throw_safetensors_error(path, entry.name, "the name is reserved");
    members.insert(entry.name, entry_to_json(entry));
  }
  return members;
}

/// Returns length and JSON, padded with spaces so that the data begin at a multiple of 8.
inline std::string format_safetensors_header(const std::filesystem::path& path,
                                             const std::vector<SafetensorsEntry>& entries,
                                             const SafetensorsMetadata& metadata) {
  try {
    auto text = header_to_json(path, entries, metadata).dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > kMaxSafetensorsHeader) throw JsonError(message(text.size(), " bytes are too many"));
    const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{text.size()});
    return std::string(length.begin(), length.end()) + text;
  } catch (const JsonError& error) {
    throw_safetensors_error(path, "header: ", error.what());
  }
}

}  // namespace detail
}  // namespace looptorch
