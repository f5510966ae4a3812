// SPDX-License-Identifier: MIT
// Writes, reads and verifies snapshots. A snapshot is a folder such as `step-00000120` with the weights and
// moments as safetensors, everything else as JSON, and a manifest with a checksum of every byte. The folder
// gets its name only when it is complete and on the disk, even if the process is killed. Reading accepts only
// what agrees with the manifest. Costs a copy to the CPU of one tensor at a time, and an fsync of each file.
// See docs/snapshot_format.md.
//
// Other headers: snapshot_folder.hpp finds and removes snapshots, snapshot_writer.hpp writes them in the
// background.
#pragma once

#include <looptorch/state/snapshot/optimizer_shard.hpp>
#include <looptorch/state/snapshot/partial_folder.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/snapshot/snapshot_image.hpp>
#include <looptorch/state/snapshot/snapshot_reading.hpp>

#include <c10/util/ScopeExit.h>

#include <sys/statvfs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch {

/// Writes `folder/step-NNNNNNNN`, creates the folder if it is missing, and returns that path once the
/// snapshot is on the disk. A snapshot of the same step is replaced in one step (renameat2); on a file system
/// that cannot do that, replacing an intact one is an error. Throws SnapshotError, or SnapshotSpaceError
/// before anything is written; then the folder is unchanged. Throws UsageError for a step below 0.
std::filesystem::path write_snapshot(const std::filesystem::path& folder, const SnapshotContents& contents);

/// Reads a snapshot into CPU tensors with memory of their own, and verifies all of it before it returns.
/// Throws SnapshotError for a snapshot that is damaged, truncated, incomplete, has surplus files, is of a
/// newer version, or lies in a folder named after another step.
[[nodiscard]] SnapshotContents read_snapshot(const std::filesystem::path& snapshot);

/// Verifies a snapshot without keeping it, in the memory of one tensor at a time. Throws what read_snapshot
/// would throw, but does not notice if shards of an optimizer lack elements.
void verify_snapshot(const std::filesystem::path& snapshot);

namespace detail {

/// Returns the folder of the snapshot with these contents. Throws what write_snapshot throws for tensors and
/// names that no snapshot can hold.
[[nodiscard]] inline std::filesystem::path snapshot_path(const std::filesystem::path& folder,
                                                         const SnapshotContents& contents) {
  if (contents.step < 0)
    throw UsageError(message("a snapshot of step ", contents.step, ": steps begin at 0"));
  auto path = folder / snapshot_name(contents.step);
  as_snapshot_errors([&] { check_contents(path, contents); });
  return path;
}

/// Returns the image of the snapshot. Throws what snapshot_path throws, and SnapshotError for files that
/// would be too long to be read.
[[nodiscard]] inline SnapshotImage make_image(const std::filesystem::path& folder,
                                              const SnapshotContents& contents) {
  auto path = snapshot_path(folder, contents);
  return as_snapshot_errors([&] { return SnapshotImage(std::move(path), contents); });
}

/// Throws SnapshotSpaceError if the disk has too little room. A file system that reports no size is assumed
/// to have enough.
inline void check_space(const std::filesystem::path& folder, const SnapshotImage& image) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) throw_file_error(folder, "cannot ask for free space", errno);
  if (disk.f_blocks == 0 || disk.f_frsize == 0) return;
  const std::uint64_t needed = image.bytes_on_disk(disk.f_frsize), free = disk.f_bavail * disk.f_frsize;
  if (needed > free) throw SnapshotSpaceError(folder, needed, free);
}

[[nodiscard]] inline bool is_sound(const std::filesystem::path& snapshot) {
  try {
    verify_snapshot(snapshot);
    return true;
  } catch (const SnapshotError&) {
    return false;
  }
}

inline void write_files(SnapshotImage& image, const std::vector<std::filesystem::path>& shards) {
  PartialFolder partial(image.path());
  for (std::size_t i = 0; i < image.files().size(); ++i) {
    auto file = partial.create(image.files()[i].listed.name);
    image.write(i, file);
    file.sync();
    file.close();
  }
  for (const std::filesystem::path& shard : shards) {
    ManifestFile listed = listing_of(shard);
    partial.adopt(shard, listed.name);
    image.add_written(std::move(listed));
    remove_shard(shard);  // the shard itself was moved: removes its listing
  }
  partial.publish(image.manifest(), is_sound);
}

}  // namespace detail

inline std::filesystem::path write_snapshot(const std::filesystem::path& folder,
                                            const SnapshotContents& contents) {
  auto left = c10::make_scope_exit([&] {
    for (const std::filesystem::path& shard : contents.shards) detail::remove_shard(shard);
  });
  auto image = detail::make_image(folder, contents);
  auto written = detail::as_snapshot_errors([&] {
    detail::make_folders(folder);
    detail::check_space(folder, image);
    detail::write_files(image, contents.shards);
    return image.path();
  });
  left.release();
  return written;
}

inline SnapshotContents read_snapshot(const std::filesystem::path& snapshot) {
  return detail::as_snapshot_errors([&] {
    const detail::SnapshotReading reading(snapshot);
    SnapshotContents contents;
    contents.step = reading.manifest().step;
    reading.read_tensors([&](const std::string& file, const std::string& name, const at::Tensor& tensor) {
      detail::take_tensor(contents, file, name, tensor);
    });
    detail::take_state(contents, snapshot / detail::kStateFile, reading.read_state());
    if (reading.has_shards()) detail::JoinedShards(snapshot).join(contents.optimizer);
    return contents;
  });
}

inline void verify_snapshot(const std::filesystem::path& snapshot) {
  detail::as_snapshot_errors([&] {
    const detail::SnapshotReading reading(snapshot);
    SnapshotContents contents;
    reading.read_tensors([&](const std::string& file, const std::string& name, const at::Tensor&) {
      detail::take_tensor(contents, file, name, at::Tensor());
    });
    detail::take_state(contents, snapshot / detail::kStateFile, reading.read_state());
  });
}

}  // namespace looptorch
