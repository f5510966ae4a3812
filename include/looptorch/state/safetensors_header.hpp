// SPDX-License-Identifier: MIT
// The header of a safetensors file: 8 bytes of length, then JSON that gives each tensor's dtype, shape and
// place. Use it alone to look into a file without reading the tensors.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/file.hpp>
#include <looptorch/state/json.hpp>

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// A file that is not sound safetensors, or tensors that the format cannot hold; names the file and the
/// tensor.
struct SafetensorsError : Error {
  using Error::Error;
};

/// Free text by key, such as {"format", "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// A type that both the format and LibTorch have.
struct SafetensorsType {
  std::string_view name;
  at::ScalarType scalar_type;
  std::uint64_t bytes;
};

/// One tensor of a file; the offsets count from the end of the header.
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

/// As in Python's safetensors: nobody's header is longer, so a longer one is not safetensors.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// In the order in which Python's safetensors lays tensors out.
inline constexpr std::array kSafetensorsTypes{
    SafetensorsType{"U64", at::kUInt64, 8},
    SafetensorsType{"I64", at::kLong, 8},
    SafetensorsType{"F64", at::kDouble, 8},
    SafetensorsType{"C64", at::kComplexFloat, 8},
    SafetensorsType{"F32", at::kFloat, 4},
    SafetensorsType{"U32", at::kUInt32, 4},
    SafetensorsType{"I32", at::kInt, 4},
    SafetensorsType{"BF16", at::kBFloat16, 2},
    SafetensorsType{"F16", at::kHalf, 2},
    SafetensorsType{"U16", at::kUInt16, 2},
    SafetensorsType{"I16", at::kShort, 2},
    SafetensorsType{"F8_E8M0", at::kFloat8_e8m0fnu, 1},
    SafetensorsType{"F8_E4M3", at::kFloat8_e4m3fn, 1},
    SafetensorsType{"F8_E5M2", at::kFloat8_e5m2, 1},
    SafetensorsType{"I8", at::kChar, 1},
    SafetensorsType{"U8", at::kByte, 1},
    SafetensorsType{"BOOL", at::kBool, 1},
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

template <class... Parts>
[[noreturn]] void throw_safetensors_error(const std::filesystem::path& path, const Parts&... parts) {
  throw SafetensorsError(message(path.string(), ": ", parts...));
}

template <class... Parts>
[[noreturn]] void throw_safetensors_error(const std::filesystem::path& path, const std::string& tensor,
                                          const Parts&... parts) {
  throw SafetensorsError(message(path.string(), ": tensor \"", tensor, "\": ", parts...));
}

/// The bytes that a shape takes; false if they do not fit in 63 bits.
[[nodiscard]] inline bool count_bytes(const std::vector<std::int64_t>& shape, std::uint64_t item,
                                      std::uint64_t& out) {
  std::int64_t bytes = static_cast<std::int64_t>(item);
  const bool overflows = std::any_of(shape.begin(), shape.end(), [&](std::int64_t dim) {
    return __builtin_mul_overflow(bytes, dim, &bytes);
  });
  out = static_cast<std::uint64_t>(bytes);
  return !overflows;
}

inline std::vector<std::int64_t> read_counts(const Json& json, const char* what) {
  std::vector<std::int64_t> counts;
  for (const Json& element : json.as_array()) {
    counts.push_back(element.as_int());
    if (counts.back() < 0) throw JsonError(message(what, " has the negative number ", counts.back()));
  }
  return counts;
}

/// Throws JsonError, to which the caller adds file and tensor.
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
  std::uint64_t bytes = 0;
  if (!count_bytes(entry.shape, entry.type->bytes, bytes)) throw JsonError("shape overflows");
  if (bytes != entry.end - entry.begin) {
    throw JsonError(
        message("shape and dtype take ", bytes, " bytes, data_offsets ", entry.end - entry.begin));
  }
  return entry;
}

inline SafetensorsMetadata read_metadata(const std::filesystem::path& path, const Json& json) {
  try {
    SafetensorsMetadata metadata;
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

/// Sorts the entries by place and checks that they fill the data exactly.
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
  if (length > std::min(file.size() - 8, kMaxSafetensorsHeader)) {
    throw_safetensors_error(file.path(), "header of ", length, " bytes in a file of ", file.size(),
                            " (at most ", kMaxSafetensorsHeader, ")");
  }
  SafetensorsHeader header;
  header.data_begin = 8 + length;
  const auto json = read_header_json(file, length);
  read_entries(file.path(), json.as_object(), header);
  check_placement(file.path(), header.entries, file.size() - header.data_begin);
  return header;
}

inline Json entry_to_json(const SafetensorsEntry& entry) {
  auto json = Json::object();
  json.set("dtype", entry.type->name).set("shape", Json::array(entry.shape));
  json.set("data_offsets",
           Json::array({static_cast<std::int64_t>(entry.begin), static_cast<std::int64_t>(entry.end)}));
  return json;
}

/// Length and JSON, padded with spaces so that the data begin at a multiple of 8.
inline std::string format_safetensors_header(const std::filesystem::path& path,
                                             const std::vector<SafetensorsEntry>& entries,
                                             const SafetensorsMetadata& metadata) {
  JsonObject members;
  auto texts = Json::object();
  for (const auto& [key, text] : metadata) texts.set(key, text);
  if (!metadata.empty()) members.insert("__metadata__", std::move(texts));
  for (const auto& entry : entries) {
    if (entry.name == "__metadata__") throw_safetensors_error(path, entry.name, "the name is reserved");
    members.insert(entry.name, entry_to_json(entry));
  }
  try {
    auto text = Json(std::move(members)).dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{text.size()});
    return std::string(length.begin(), length.end()) + text;
  } catch (const JsonError& error) {
    throw_safetensors_error(path, "header: ", error.what());
  }
}

}  // namespace detail

/// Reads and checks a file's header only; throws FileError and SafetensorsError.
[[nodiscard]] inline SafetensorsHeader load_safetensors_header(const std::filesystem::path& path) {
  return detail::read_safetensors_header(InputFile(path));
}

}  // namespace looptorch
