// SPDX-License-Identifier: MIT
// Reads and checks the header of a safetensors file: 8 bytes of length, then JSON with each tensor's dtype,
// shape and offsets. Use it alone to inspect a file without reading the tensors.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors_type.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Thrown for a file that is not valid safetensors, and for tensors that the format cannot hold. Names the
/// file and the tensor.
struct SafetensorsError : Error {
  using Error::Error;
};

/// Free text by key, such as {"format", "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// One tensor of a file. The offsets count from the end of the header. The shape is the file's; for F4 its
/// last dimension is twice the tensor's.
struct SafetensorsEntry {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// A checked header: the entries follow each other without overlap or hole and end where the file ends.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
  std::uint64_t data_begin = 0;
};

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "looptorch: safetensors are read and written as they lie in memory, which is right on "
              "little-endian machines only.");

/// The longest header that is accepted, as in Python's safetensors.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

template <class... Parts>
[[noreturn]] void throw_safetensors_error(const std::filesystem::path& path, const Parts&... parts) {
  throw SafetensorsError(message(path.string(), ": ", parts...));
}

template <class... Parts>
[[noreturn]] void throw_safetensors_error(const std::filesystem::path& path, const std::string& tensor,
                                          const Parts&... parts) {
  throw SafetensorsError(message(path.string(), ": tensor \"", tensor, "\": ", parts...));
}

/// Returns the bytes that a shape takes. Throws JsonError if they do not fit in 63 bits with each 0 taken as
/// 1, since strides would not either. Throws JsonError also if elements of less than a byte do not come in
/// pairs along the last dimension.
[[nodiscard]] inline std::uint64_t count_bytes(const SafetensorsType& type,
                                               const std::vector<std::int64_t>& shape) {
  if (type.bits < 8 && (shape.empty() || shape.back() % 2 != 0)) {
    throw JsonError(message("the last dimension of ", type.name, " is not even"));
  }
  std::int64_t bits = static_cast<std::int64_t>(type.bits);
  for (const auto dim : shape) {
    if (__builtin_mul_overflow(bits, std::max<std::int64_t>(dim, 1), &bits))
      throw JsonError("shape overflows");
  }
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return is_empty ? 0 : static_cast<std::uint64_t>(bits) / 8;
}

inline std::vector<std::int64_t> read_counts(const Json& json, const char* what) {
  std::vector<std::int64_t> counts;
  for (const Json& element : json.as_array()) {
    counts.push_back(element.as_int());
    if (counts.back() < 0) throw JsonError(message(what, " has the negative number ", counts.back()));
  }
  return counts;
}

/// Reads one entry. Throws JsonError, to which the caller adds file and tensor.
inline SafetensorsEntry read_entry(const std::string& name, const Json& json) {
  SafetensorsEntry entry;
  entry.name = name;
  const auto& dtype = json.at("dtype").as_string();
  entry.type = find_safetensors_type(dtype);
  if (!entry.type) throw JsonError("unknown dtype \"" + dtype + "\"");
  entry.shape = read_counts(json.at("shape"), "shape");
  const auto offsets = read_counts(json.at("data_offsets"), "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw JsonError("data_offsets are not a begin and an end");
  }
  entry.begin = static_cast<std::uint64_t>(offsets[0]);
  entry.end = static_cast<std::uint64_t>(offsets[1]);
  const auto bytes = count_bytes(*entry.type, entry.shape);
  if (bytes != entry.end - entry.begin) {
    throw JsonError(
        message("shape and dtype take ", bytes, " bytes, data_offsets ", entry.end - entry.begin));
  }
  return entry;
}

inline SafetensorsMetadata read_metadata(const std::filesystem::path& path, const Json& json) {
  try {
    SafetensorsMetadata metadata;
    if (json.is_null()) return metadata;
    for (const auto& [key, value] : json.as_object()) metadata.emplace(key, value.as_string());
    return metadata;
  } catch (const JsonError& error) {
    throw_safetensors_error(path, "__metadata__: ", error.what());
  }
}

inline void read_entries(const std::filesystem::path& path, const JsonObject& json,
                         SafetensorsHeader& header) {
  for (const auto& [name, value] : json) {
    try {
      if (name == "__metadata__") {
        header.metadata = read_metadata(path, value);
      } else {
        header.entries.push_back(read_entry(name, value));
      }
    } catch (const JsonError& error) {
      throw_safetensors_error(path, name, error.what());
    }
  }
}

/// Sorts the entries by offset and checks that they fill the data exactly.
inline void check_placement(const std::filesystem::path& path, std::vector<SafetensorsEntry>& entries,
                            std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t end = 0;
  for (const auto& entry : entries) {
    if (entry.end > data_bytes) {
      throw_safetensors_error(path, entry.name, "ends at byte ", entry.end, " of the data, which has ",
                              data_bytes);
    }
    if (entry.begin != end) {
      throw_safetensors_error(path, entry.name, entry.begin < end ? "overlaps" : "leaves a hole after",
                              " what is before it: begins at byte ", entry.begin, " instead of ", end);
    }
    end = entry.end;
  }
  if (end != data_bytes) throw_safetensors_error(path, data_bytes - end, " bytes after the last tensor");
}

inline Json read_header_json(const InputFile& file, std::uint64_t length) {
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read_at(8, text.data(), text.size());
  try {
    auto json = Json::parse(text);
    (void)json.as_object();
    return json;
  } catch (const JsonError& error) {
    throw_safetensors_error(file.path(), "header: ", error.what());
  }
}

inline SafetensorsHeader read_safetensors_header(const InputFile& file) {
  if (file.size() < 8) throw_safetensors_error(file.path(), file.size(), " bytes are too few for a header");
  std::uint64_t length = 0;
  file.read_at(0, &length, 8);
  if (length > kMaxSafetensorsHeader)
    throw_safetensors_error(file.path(),
                            "is no safetensors file, or damaged: its first 8 bytes give a header of ", length,
                            " bytes, and at most ", kMaxSafetensorsHeader, " are allowed");
  if (length > file.size() - 8)
    throw_safetensors_error(file.path(), "is cut off, or no safetensors file: header of ", length,
                            " bytes in a file of ", file.size());
  SafetensorsHeader header;
  header.data_begin = 8 + length;
  const auto json = read_header_json(file, length);
  read_entries(file.path(), json.as_object(), header);
  check_placement(file.path(), header.entries, file.size() - header.data_begin);
  return header;
}

}  // namespace detail

/// Reads and checks only a file's header. Throws FileError and SafetensorsError.
[[nodiscard]] inline SafetensorsHeader load_safetensors_header(const std::filesystem::path& path) {
  return detail::read_safetensors_header(InputFile(path));
}

}  // namespace looptorch
