// SPDX-License-Identifier: MIT
// Reads and writes the manifest.json of a snapshot. It lists the snapshot's files and their sizes, with
// checksums of every byte of the files and of the manifest itself.
#pragma once

#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/json/json_hex.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>
#include <looptorch/state/weights/tied_tensors.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The version of the format that is written, which is also the newest that can be read.
inline constexpr std::int64_t kSnapshotVersion = 1;
inline constexpr std::string_view kSnapshotFormat = "looptorch snapshot";

[[nodiscard]] inline std::uint64_t checksum_of(std::string_view bytes) {
  Checksum sum;
  sum.add(bytes.data(), bytes.size());
  return sum.value();
}

/// The limits for manifests and states, far above any real one. Each value takes more than 8 bytes of text,
/// which gives the number of values.
inline constexpr JsonLimits kSnapshotJson{
    .max_bytes = std::size_t{1} << 26, .max_depth = 8, .max_values = std::size_t{1} << 23};

/// Throws JsonError for a text that reading would refuse.
inline void check_json_size(std::string_view text) {
  if (text.size() > kSnapshotJson.max_bytes) {
    throw JsonError(
        message("takes ", text.size(), " bytes, more than the ", kSnapshotJson.max_bytes, " allowed"));
  }
}

struct ManifestTensor {
  std::string name;
  std::uint64_t bytes = 0, checksum = 0;
};

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  /// The checksum of the whole file. For safetensors it is that of the header, followed by the tensors'
  /// checksums.
  std::uint64_t checksum = 0;
  /// The tensors, in the order of the file.
  std::vector<ManifestTensor> tensors;
  TiedNames tied;
};

/// Returns the checksum of a file's header, or of a whole file without tensors, combined with the tensors'
/// checksums.
[[nodiscard]] inline std::uint64_t file_checksum(std::string_view head,
                                                 const std::vector<ManifestTensor>& tensors) {
  Checksum sum;
  sum.add(head.data(), head.size());
  for (const auto& tensor : tensors) sum.add(&tensor.checksum, sizeof tensor.checksum);
  return sum.value();
}

class SnapshotManifest {
 public:
  std::int64_t step = 0;
  std::vector<ManifestFile> files;

  [[nodiscard]] std::string text() const;

  /// Parses a manifest. Throws SnapshotError that names `path`.
  [[nodiscard]] static SnapshotManifest parse(const std::filesystem::path& path, std::string_view text);

  /// Returns the text with its last member added: the checksum of the members before it.
  [[nodiscard]] static std::string sealed(std::string beginning) { return beginning + end_of(beginning); }

 private:
  [[nodiscard]] static Json to_json(const ManifestFile& file);
  [[nodiscard]] static ManifestFile read_file(const std::string& name, const Json& json);
  [[nodiscard]] static std::string end_of(std::string_view beginning);
};

/// Returns the last member, a checksum of everything before it.
inline std::string SnapshotManifest::end_of(std::string_view beginning) {
  return message(",\n  \"checksum\": \"", hex_of(checksum_of(beginning)), "\"\n}\n");
}

inline Json SnapshotManifest::to_json(const ManifestFile& file) {
  auto json = Json::object();
  json.set("bytes", static_cast<std::int64_t>(file.bytes)).set("checksum", hex_of(file.checksum));
  JsonObject tensors;
  for (const auto& tensor : file.tensors) {
    auto entry = Json::object();
    entry.set("bytes", static_cast<std::int64_t>(tensor.bytes)).set("checksum", hex_of(tensor.checksum));
    tensors.insert(tensor.name, std::move(entry));
  }
  JsonObject tied;
  for (const auto& [name, kept] : file.tied) tied.insert(name, kept);
  if (!tensors.empty()) json.set("tensors", std::move(tensors));
  if (!tied.empty()) json.set("tied", std::move(tied));
  return json;
}

inline std::string SnapshotManifest::text() const {
  auto json = Json::object();
  json.set("format", kSnapshotFormat).set("version", kSnapshotVersion).set("step", step);
  JsonObject entries;
  for (const auto& file : files) entries.insert(file.name, to_json(file));
  json.set("files", std::move(entries));
  auto beginning = json.dump(2);
  beginning.resize(beginning.size() - 2);  // without the last "\n}"
  return sealed(std::move(beginning));
}

inline std::uint64_t read_size(const Json& json) {
  const auto size = json.at("bytes").as_int();
  if (size < 0) throw JsonError(message("a size of ", size, " bytes"));
  return static_cast<std::uint64_t>(size);
}

/// Throws JsonError unless each tied name refers to one of the tensors and is not itself a tensor's name.
inline void check_tied(const ManifestFile& file) {
  std::set<std::string_view> names;
  for (const auto& tensor : file.tensors) names.insert(tensor.name);
  for (const auto& [name, kept] : file.tied) {
    if (names.count(name) > 0 || names.count(kept) == 0) {
      throw JsonError(message("in ", file.name, " \"", name, "\" cannot be tied to \"", kept, '"'));
    }
  }
}

inline ManifestFile SnapshotManifest::read_file(const std::string& name, const Json& json) {
  if (!is_snapshot_file(name) || name == kManifestFile) {
    throw JsonError(message("\"", name, "\" is no file of a snapshot"));
  }
  ManifestFile file{name, read_size(json), number_from_hex(json.at("checksum")), {}, {}};
  for (const auto& [tensor, entry] : json.get("tensors", Json::object()).as_object()) {
    file.tensors.push_back({tensor, read_size(entry), number_from_hex(entry.at("checksum"))});
  }
  for (const auto& [tied, kept] : json.get("tied", Json::object()).as_object()) {
    file.tied.emplace(tied, kept.as_string());
  }
  check_tied(file);
  return file;
}

inline SnapshotManifest SnapshotManifest::parse(const std::filesystem::path& path, std::string_view text) {
  const std::size_t end = end_of({}).size();
  const auto beginning = text.substr(0, text.size() - std::min(end, text.size()));
  if (const auto expected = end_of(beginning); text.substr(beginning.size()) != expected) {
    throw SnapshotError(message(path.string(), ": is damaged: it does not end with its checksum, ",
                                hex_of(checksum_of(beginning))));
  }
  try {
    const auto json = Json::parse(text, kSnapshotJson);
    if (const auto& format = json.at("format").as_string(); format != kSnapshotFormat) {
      throw JsonError(message("is no snapshot's: its format is \"", format, '"'));
    }
    if (const auto version = json.at("version").as_int(); version > kSnapshotVersion || version < 1) {
      throw JsonError(message("the snapshot has version ", version,
                              " of the format, and this looptorch reads ", kSnapshotVersion,
                              " and older: use the looptorch that wrote it, or a newer one"));
    }
    SnapshotManifest manifest;
    manifest.step = json.at("step").as_int();
    for (const auto& [name, entry] : json.at("files").as_object()) {
      manifest.files.push_back(read_file(name, entry));
    }
    return manifest;
  } catch (const JsonError& error) {
    throw SnapshotError(message(path.string(), ": ", error.what()));
  }
}

}  // namespace looptorch::detail
