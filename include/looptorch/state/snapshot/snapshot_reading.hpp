// SPDX-License-Identifier: MIT
// Reads a snapshot and returns only what agrees with the manifest. Each tensor is read into memory of its own
// before it is checked, so that the caller gets the bytes that were checked.
#pragma once

#include <looptorch/state/snapshot/snapshot_contents.hpp>
#include <looptorch/state/snapshot/snapshot_image.hpp>
#include <looptorch/state/snapshot/snapshot_manifest.hpp>
#include <looptorch/state/snapshot/snapshot_remove.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace looptorch::detail {

template <class... Parts>
[[noreturn]] void throw_snapshot_error(const std::filesystem::path& path, const Parts&... parts) {
  throw SnapshotError(message(path.string(), ": ", parts...));
}

class SnapshotReading {
 public:
  /// Reads the manifest and compares it with the folder. Throws as read_snapshot does, as do all members.
  explicit SnapshotReading(std::filesystem::path snapshot);

  [[nodiscard]] const SnapshotManifest& manifest() const { return manifest_; }

  /// True if several ranks have written it.
  [[nodiscard]] bool has_shards() const {
    return std::any_of(manifest_.files.begin(), manifest_.files.end(),
                       [](const ManifestFile& file) { return is_shard_file(file.name); });
  }

  /// Throws unless every file exists and has its size.
  void check_sizes() const {
    for (const auto& file : manifest_.files) (void)open(file);
  }

  /// Calls `take(file, name, tensor)` for each tensor of each file, by any of its names.
  template <class Take>
  void read_tensors(Take take) const;

  /// Returns the state's numbers and texts.
  [[nodiscard]] Json read_state() const;

 private:
  void check_files() const;
  [[nodiscard]] InputFile open(const ManifestFile& listed) const;
  [[nodiscard]] const ManifestFile* find(std::string_view name) const;
  template <class Take>
  void read_tensors_of(const ManifestFile& listed, Take& take) const;
  [[nodiscard]] static SafetensorsHeader read_header(const InputFile& file, const ManifestFile& listed);
  [[nodiscard]] static at::Tensor read_tensor(const InputFile& file, std::uint64_t data_begin,
                                              const SafetensorsEntry& entry, const ManifestTensor& listed);

  std::filesystem::path snapshot_;
  SnapshotManifest manifest_;
};

inline SnapshotReading::SnapshotReading(std::filesystem::path snapshot)
    : snapshot_(std::move(snapshot)),
      manifest_(SnapshotManifest::parse(snapshot_ / kManifestFile,
                                        read_file(snapshot_ / kManifestFile, kSnapshotJson.max_bytes))) {
  const auto whole = snapshot_.has_filename() ? snapshot_ : snapshot_.parent_path();
  if (const auto step = step_of(whole.filename().string()); step && *step != manifest_.step) {
    throw_snapshot_error(snapshot_, "the manifest is of step ", manifest_.step, ", the folder's name of ",
                         *step);
  }
  check_files();
}

inline const ManifestFile* SnapshotReading::find(std::string_view name) const {
  const auto found = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                  [&](const ManifestFile& file) { return file.name == name; });
  return found == manifest_.files.end() ? nullptr : &*found;
}

inline void SnapshotReading::check_files() const {
  for (const auto required : {kModelFile, kStateFile}) {
    if (!find(required)) throw_snapshot_error(snapshot_ / kManifestFile, "lists no ", required);
  }
  const FileDescriptor folder(::open(snapshot_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto names = folder.get() < 0 ? std::nullopt : names_in(folder);
  if (!names) throw_file_error(snapshot_, "cannot read the folder", errno);
  for (const auto& name : *names) {
    if (name != kManifestFile && !find(name)) {
      throw_snapshot_error(snapshot_ / name, "is not in the snapshot's manifest");
    }
  }
}

inline InputFile SnapshotReading::open(const ManifestFile& listed) const {
  InputFile file(snapshot_ / listed.name);
  if (file.size() != listed.bytes) {
    throw_snapshot_error(file.path(), "has ", file.size(), " bytes, the manifest says ", listed.bytes);
  }
  return file;
}

inline void expect_checksum(const std::filesystem::path& path, const std::string& what, std::uint64_t found,
                            std::uint64_t listed) {
  if (found == listed) return;
  throw_snapshot_error(path, what, "is damaged: its checksum is ", hex_of(found), ", the manifest says ",
                       hex_of(listed));
}

inline SafetensorsHeader SnapshotReading::read_header(const InputFile& file, const ManifestFile& listed) {
  auto header = read_safetensors_header(file);
  std::string head(static_cast<std::size_t>(header.data_begin), '\0');
  file.read_at(0, head.data(), head.size());
  expect_checksum(file.path(), "the header ", file_checksum(head, listed.tensors), listed.checksum);
  const bool same = std::equal(header.entries.begin(), header.entries.end(), listed.tensors.begin(),
                               listed.tensors.end(), [](const auto& entry, const ManifestTensor& tensor) {
                                 return entry.name == tensor.name && bytes_of(entry) == tensor.bytes;
                               });
  if (!same) throw_snapshot_error(file.path(), "has not the tensors that the manifest lists");
  return header;
}

inline at::Tensor SnapshotReading::read_tensor(const InputFile& file, std::uint64_t data_begin,
                                               const SafetensorsEntry& entry, const ManifestTensor& listed) {
  auto tensor = allocate_tensor(entry);
  auto* bytes = static_cast<char*>(tensor.mutable_data_ptr());
  file.read_at(data_begin + entry.begin, bytes, bytes_of(entry));
  expect_checksum(file.path(), "tensor \"" + entry.name + "\" ", checksum_of({bytes, bytes_of(entry)}),
                  listed.checksum);
  return tensor;
}

template <class Take>
void SnapshotReading::read_tensors_of(const ManifestFile& listed, Take& take) const {
  const auto file = open(listed);
  const auto header = read_header(file, listed);
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    const auto& entry = header.entries[i];
    const auto tensor = read_tensor(file, header.data_begin, entry, listed.tensors[i]);
    take(listed.name, entry.name, tensor);
    for (const auto& [name, kept] : listed.tied) {
      if (kept == entry.name) take(listed.name, name, tensor);
    }
  }
  file.expect_unchanged();
}

template <class Take>
void SnapshotReading::read_tensors(Take take) const {
  for (const auto& listed : manifest_.files) {
    if (listed.name != kStateFile) read_tensors_of(listed, take);
  }
}

inline Json SnapshotReading::read_state() const {
  const auto& listed = *find(kStateFile);
  const auto path = open(listed).path();
  const auto text = read_file(path, kSnapshotJson.max_bytes);
  expect_checksum(path, "", file_checksum(text, listed.tensors), listed.checksum);
  try {
    auto json = Json::parse(text, kSnapshotJson);
    if (const auto step = json.at("step").as_int(); step != manifest_.step) {
      throw JsonError(message("is of step ", step, ", the manifest of ", manifest_.step));
    }
    return json;
  } catch (const JsonError& error) {
    throw_snapshot_error(path, error.what());
  }
}

/// Moves a tensor to the member of `contents` that belongs to its file.
inline void take_tensor(SnapshotContents& contents, std::string_view file, const std::string& name,
                        const at::Tensor& tensor) {
  if (file == kModelFile) {
    contents.model.emplace(name, tensor);
  } else if (file == kAveragedFile) {
    contents.averaged.emplace(name, tensor);
  } else {
    (file == kOptimizerFile || is_shard_file(file) ? contents.optimizer : contents.state).set(name, tensor);
  }
}

/// Adds the numbers and texts to a state of tensors. Throws if a key occurs in both.
inline void take_numbers(StateDict& state, std::string_view tensors_file, const Json& json) {
  for (const auto& [key, value] : json.as_object()) {
    if (state.contains(key)) throw JsonError(message('"', key, "\": is a tensor too, in ", tensors_file));
  }
  add_numbers(state, json);
}

inline void take_state(SnapshotContents& contents, const std::filesystem::path& path, const Json& json) {
  try {
    take_numbers(contents.optimizer, kOptimizerFile, json.at("optimizer"));
    take_numbers(contents.state, kStateTensorsFile, json.at("state"));
  } catch (const JsonError& error) {
    throw_snapshot_error(path, error.what());
  }
}

}  // namespace looptorch::detail
