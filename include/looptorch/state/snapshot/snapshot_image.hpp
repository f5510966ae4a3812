// SPDX-License-Identifier: MIT
// Prepares the files of a snapshot before they are written: which tensors each file holds, at which offsets,
// with which header, and how large it is. So faults and a full disk are found before anything is written.
// Copies no tensor; the checksums are added as the tensors are written.
#pragma once

#include <looptorch/base/files/output_file.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>
#include <looptorch/state/snapshot/snapshot_manifest.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>
#include <looptorch/state/snapshot/state_json.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// One file: a head of bytes, then tensors.
struct FileImage {
  ManifestFile listed;
  std::string head;
  std::vector<at::Tensor> tensors;
};

/// Returns the image of a file of tensors. Of tied tensors only the first is written; the names of the others
/// go into the metadata, where Python's `safetensors` looks for them. Throws SafetensorsError, with `path`,
/// for anything that the format cannot hold.
[[nodiscard]] inline FileImage image_of_tensors(const std::filesystem::path& path, TensorMap tensors,
                                                TiedNames tied) {
  FileImage image;
  image.listed.name = path.filename().string();
  SafetensorsMetadata metadata(tied.begin(), tied.end());
  metadata.emplace("format", "pt");
  for (const auto& [other, kept] : tied) tensors.erase(other);
  const auto entries = lay_out(path, tensors);
  image.head = format_safetensors_header(path, entries, metadata);
  image.listed.bytes = image.head.size();
  for (const auto& entry : entries) {
    image.listed.tensors.push_back({entry.name, entry.end - entry.begin, 0});
    image.listed.bytes += entry.end - entry.begin;
    image.tensors.push_back(tensors.at(entry.name));
  }
  image.listed.tied = std::move(tied);
  return image;
}

/// Returns the image of the state's file. Throws JsonError.
[[nodiscard]] inline FileImage image_of_state(const SnapshotContents& contents) {
  auto json = Json::object();
  json.set("step", contents.step).set("optimizer", numbers_of(contents.optimizer));
  FileImage image;
  image.listed.name = kStateFile;
  image.head = json.set("state", numbers_of(contents.state)).dump(2) + "\n";
  image.listed.bytes = image.head.size();
  check_json_size(image.head);
  return image;
}

/// Checks that a snapshot can hold the contents. Throws SafetensorsError and SnapshotError, which name the
/// file and the tensor or key. Takes a fraction of the time of making an image, so that the training thread
/// may call it.
inline void check_contents(const std::filesystem::path& folder, const SnapshotContents& contents) {
  const auto check_name = [&](std::string_view file, const std::string& name) {
    try {
      check_key(name);
    } catch (const JsonError& error) {
      throw SnapshotError(message((folder / file).string(), ": ", error.what()));
    }
  };
  const auto check_tensor = [&](std::string_view file, const std::string& name, const at::Tensor& tensor) {
    check_name(file, name);
    (void)describe_tensor(folder / file, name, tensor);
  };
  const auto check_state = [&](std::string_view tensors_file, const StateDict& state) {
    for (const auto& [key, value] : state.values()) {
      const auto* tensor = value.get_if<at::Tensor>();
      if (tensor && tensor->defined()) {
        check_tensor(tensors_file, key, *tensor);
      } else {
        check_name(kStateFile, key);
      }
    }
  };
  for (const auto& [name, tensor] : contents.model) check_tensor(kModelFile, name, tensor);
  for (const auto& [name, tensor] : contents.averaged) check_tensor(kAveragedFile, name, tensor);
  check_state(kOptimizerFile, contents.optimizer);
  check_state(kStateTensorsFile, contents.state);
}

/// Writes a file of tensors and computes its checksums.
template <class File>
void write_image(FileImage& image, File& to) {
  auto& [listed, head, tensors] = image;
  to.write(head);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto values = tensors[i].detach().cpu().resolve_conj().resolve_neg().contiguous();
    const std::string_view bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
    listed.tensors[i].checksum = checksum_of(bytes);
    to.write(bytes);
  }
  listed.checksum = file_checksum(head, listed.tensors);
}

class SnapshotImage {
 public:
  /// `path` is the snapshot's folder. `contents` must have passed check_contents.
  SnapshotImage(std::filesystem::path path, const SnapshotContents& contents);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::vector<FileImage>& files() const { return files_; }

  /// Returns the size of all files, the manifest included, each rounded up to whole blocks.
  [[nodiscard]] std::uint64_t bytes_on_disk(std::uint64_t block) const;

  /// Writes a file and computes its checksums.
  void write(std::size_t file, OutputFile& to) { write_image(files_[file], to); }
  void add_written(ManifestFile listed) { files_.push_back({std::move(listed), {}, {}}); }

  /// Returns the manifest. Call after all files have been written. Throws JsonError if it is too long to be
  /// read.
  [[nodiscard]] std::string manifest() const;

 private:
  void add_tensors(std::string_view file, TensorMap tensors, TiedNames tied);
  void add_state(const SnapshotContents& contents);

  std::filesystem::path path_;
  std::int64_t step_;
  std::vector<FileImage> files_;
};

inline SnapshotImage::SnapshotImage(std::filesystem::path path, const SnapshotContents& contents)
    : path_(std::move(path)), step_(contents.step) {
  add_tensors(kModelFile, contents.model, find_tied_names(contents.model));
  if (!contents.averaged.empty()) {
    add_tensors(kAveragedFile, contents.averaged, find_tied_names(contents.averaged));
  }
  if (auto tensors = tensors_of(contents.optimizer); !tensors.empty()) {
    add_tensors(kOptimizerFile, std::move(tensors), {});
  }
  if (auto tensors = tensors_of(contents.state); !tensors.empty()) {
    add_tensors(kStateTensorsFile, std::move(tensors), {});
  }
  add_state(contents);
}

inline void SnapshotImage::add_tensors(std::string_view file, TensorMap tensors, TiedNames tied) {
  files_.push_back(image_of_tensors(path_ / file, std::move(tensors), std::move(tied)));
}

inline void SnapshotImage::add_state(const SnapshotContents& contents) {
  try {
    files_.push_back(image_of_state(contents));
  } catch (const JsonError& error) {
    throw SnapshotError(message((path_ / kStateFile).string(), ": ", error.what()));
  }
}

inline std::uint64_t SnapshotImage::bytes_on_disk(std::uint64_t block) const {
  const auto in_blocks = [block](std::uint64_t bytes) { return (bytes + block - 1) / block * block; };
  std::uint64_t bytes = block + in_blocks(manifest().size());  // the folder itself takes a block
  for (const auto& file : files_) bytes += in_blocks(file.listed.bytes);
  return bytes;
}

inline std::string SnapshotImage::manifest() const {
  SnapshotManifest manifest;
  manifest.step = step_;
  for (const auto& file : files_) manifest.files.push_back(file.listed);
  auto text = manifest.text();
  check_json_size(text);
  return text;
}

}  // namespace looptorch::detail
