// SPDX-License-Identifier: MIT
// Stores the samples of a cache in two files, which any number of processes and threads read and extend at
// once. NAME.data holds the samples in sequence, NAME.index a record of 64 bytes for each. A record is
// written after its sample, so a killed process leaves no incomplete sample in the index; checksums detect
// what a power failure loses. Appending locks the index, reading locks nothing. Opening costs 0.4 us and 12
// to 24 bytes of memory a record.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/file_lock.hpp>
#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/data/cache/pack_entry.hpp>
#include <looptorch/data/cache/pack_table.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

namespace looptorch::detail {

class SamplePack {
 public:
  /// Opens or creates the files; `name` is their path without `.data` and `.index`. Files that cannot be
  /// written are only read. If a full disk has no room for new files, the pack stays empty. Throws FileError
  /// if they cannot be opened.
  explicit SamplePack(const std::filesystem::path& name);

  /// Finds a sample, also one that another process has added since. Waits for no other process.
  std::optional<PackEntry> find(const PackKey& key);

  /// Reads `size` bytes from `offset` on. Returns false if the file ends before that or the disk fails.
  bool read(std::uint64_t offset, void* data, std::size_t size) const;

  /// Removes a damaged entry; the next `append` of this key replaces it.
  void forget(const PackKey& key, const PackEntry& damaged);

  /// Adds a sample, unless another process has added it meanwhile. Returns `no_room` if both files would
  /// exceed `max_bytes`, and `failed` if they cannot be locked or written. Waits for another process's lock
  /// for at most `kLockTimeout`. After a failed wait it does not wait again until the lock has been free
  /// once.
  PackAppend append(const PackKey& key, std::span<const PackPiece> pieces, std::uint64_t max_bytes);

  /// Returns the size of both files, including data of other processes.
  std::uint64_t bytes() const;

  /// Returns the number of index records that were damaged when read.
  std::uint64_t damaged_records() const;

 private:
  /// Says whether an incomplete record at the end of the index may still be in the middle of a write.
  enum class Tail { open, settled };

  FileDescriptor open(const std::filesystem::path& path);
  static std::uint64_t size_of(const FileDescriptor& file);
  static bool read_at(const FileDescriptor& file, std::uint64_t offset, void* data, std::size_t size);
  static bool write_at(const FileDescriptor& file, std::uint64_t offset, const void* data, std::size_t size);
  static void cut(const FileDescriptor& file, std::uint64_t size);

  std::uint64_t records_in_index() const { return size_of(index_) / sizeof(PackRecord); }
  std::optional<PackRecord> record(std::uint64_t number) const;
  auto is_of(const PackKey& key) const;
  std::optional<PackEntry> known(const PackKey& key) const;
  void read_new_records(Tail tail);
  std::size_t read_records(std::span<PackRecord> records) const;
  void take(const PackRecord& record);
  PackAppend write(const PackKey& key, std::span<const PackPiece> pieces, std::uint64_t max_bytes);

  int unwritable_ = 0;  // errno
  const FileDescriptor data_, index_;
  std::mutex append_mutex_;  // held together with the file lock; also guards the next
  std::chrono::milliseconds timeout_ = kLockTimeout;
  mutable std::shared_mutex mutex_;  // guards what follows; not held while writing to the disk
  PackTable table_;
  std::uint64_t seen_ = 0;  // number of index records read so far
  std::uint64_t damaged_ = 0;
};

inline SamplePack::SamplePack(const std::filesystem::path& name)
    : data_(open(name.string() + ".data")), index_(open(name.string() + ".index")) {
  read_new_records(Tail::open);
}

inline FileDescriptor SamplePack::open(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() >= 0) return file;
  const int reason = unwritable_ = errno;
  const bool is_full = reason == ENOSPC || reason == EDQUOT;
  if (is_full || reason == EACCES || reason == EPERM || reason == EROFS)
    file = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && !is_full) throw_file_error(path, "cannot open", reason);
  return file;
}

inline std::uint64_t SamplePack::size_of(const FileDescriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

inline std::uint64_t SamplePack::bytes() const { return size_of(data_) + size_of(index_); }

inline std::uint64_t SamplePack::damaged_records() const {
  const std::shared_lock lock(mutex_);
  return damaged_;
}

inline std::optional<PackRecord> SamplePack::record(std::uint64_t number) const {
  PackRecord found{};
  if (!read_at(index_, number * sizeof(found), &found, sizeof(found)) || !found.is_whole())
    return std::nullopt;
  return found;
}

inline auto SamplePack::is_of(const PackKey& key) const {
  return [this, &key](PackTable::Number number) {
    const auto found = record(number);
    return found && found->key == key;
  };
}

inline std::optional<PackEntry> SamplePack::known(const PackKey& key) const {
  std::optional<PackEntry> entry;
  const auto keep = [&](PackTable::Number number) {
    const auto found = record(number);
    if (found && found->key == key) entry = found->entry;
    return entry.has_value();
  };
  table_.contains(key, keep);
  return entry;
}

inline std::optional<PackEntry> SamplePack::find(const PackKey& key) {
  {
    const std::shared_lock lock(mutex_);
    if (const auto entry = known(key); entry || records_in_index() == seen_) return entry;
  }
  const std::unique_lock lock(mutex_);
  read_new_records(Tail::open);
  return known(key);
}

/// Reads the records that were added since. Under the file lock (`settled`) no process is writing, so an
/// incomplete record is damaged or was left by a killed writer. Without the lock, an incomplete record at the
/// end is read again next time.
inline void SamplePack::read_new_records(Tail tail) {
  const std::uint64_t count = std::min(records_in_index(), PackTable::kMaxRecords);
  if (count < seen_) {  // another process has emptied the cache
    table_.clear();
    seen_ = 0;
  }
  table_.reserve(static_cast<std::size_t>(count));
  constexpr std::uint64_t kAtOnce = 4096;
  std::vector<PackRecord> records;
  while (seen_ < count) {
    records.resize(static_cast<std::size_t>(std::min(kAtOnce, count - seen_)));
    records.resize(read_records(records));
    if (tail == Tail::open && seen_ + records.size() == count)
      while (!records.empty() && !records.back().is_whole()) records.pop_back();
    if (records.empty()) return;
    for (const PackRecord& record : records) take(record);
  }
}

/// Reads the records from `seen_` on and returns how many could be read.
inline std::size_t SamplePack::read_records(std::span<PackRecord> records) const {
  const auto begin = static_cast<off_t>(seen_ * sizeof(PackRecord));
  for (;;) {
    const auto got = ::pread(index_.get(), records.data(), records.size_bytes(), begin);
    if (got >= 0) return static_cast<std::size_t>(got) / sizeof(PackRecord);
    if (errno != EINTR) return 0;
  }
}

inline void SamplePack::take(const PackRecord& record) {
  const auto number = static_cast<PackTable::Number>(seen_++);
  if (record.is_whole())
    table_.put(record.key, number, is_of(record.key));
  else
    ++damaged_;
}

inline void SamplePack::forget(const PackKey& key, const PackEntry& damaged) {
  const std::unique_lock lock(mutex_);
  if (known(key) == damaged) table_.erase(key, is_of(key));
}

inline bool SamplePack::read(std::uint64_t offset, void* data, std::size_t size) const {
  return read_at(data_, offset, data, size);
}

inline bool SamplePack::read_at(const FileDescriptor& file, std::uint64_t offset, void* data,
                                std::size_t size) {
  auto* out = static_cast<char*>(data);
  while (size > 0) {
    const auto got = ::pread(file.get(), out, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

/// Writes at an offset. Returns false, with errno set, if it fails.
inline bool SamplePack::write_at(const FileDescriptor& file, std::uint64_t offset, const void* data,
                                 std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto put = ::pwrite(file.get(), bytes, size, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = EIO;
    if (put <= 0) return false;
    bytes += put;
    offset += static_cast<std::uint64_t>(put);
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

/// Truncates a file. If that fails, a part of a sample stays without a record and is never read.
inline void SamplePack::cut(const FileDescriptor& file, std::uint64_t size) {
  [[maybe_unused]] const int failed = ::ftruncate(file.get(), static_cast<off_t>(size));
}

inline PackAppend SamplePack::append(const PackKey& key, std::span<const PackPiece> pieces,
                                     std::uint64_t max_bytes) {
  if (unwritable_ != 0) return {PackAppend::failed, 0, unwritable_};
  const std::lock_guard one(append_mutex_);
  const FileLock lock(index_.get(), LOCK_EX, timeout_);
  timeout_ = lock.error() == EWOULDBLOCK ? std::chrono::milliseconds(0) : kLockTimeout;
  if (lock.error() != 0) return {PackAppend::failed, 0, lock.error()};
  {
    const std::unique_lock own(mutex_);
    read_new_records(Tail::settled);
    if (known(key)) return {PackAppend::stored};
  }
  const PackAppend done = write(key, pieces, max_bytes);
  const std::unique_lock own(mutex_);
  read_new_records(Tail::settled);
  return done;
}

/// Writes a sample, then its record; data without a record are never read. Truncates both files again if a
/// write fails.
inline PackAppend SamplePack::write(const PackKey& key, std::span<const PackPiece> pieces,
                                    std::uint64_t max_bytes) {
  const std::uint64_t begin = pack_aligned(size_of(data_)), number = records_in_index();
  Checksum sum;
  std::uint64_t end = begin;
  for (const PackPiece piece : pieces) {
    sum.add(piece.data(), piece.size());
    end += pack_aligned(piece.size());
  }
  const std::uint64_t needs = end + (number + 1) * sizeof(PackRecord);
  if (number >= PackTable::kMaxRecords) return {PackAppend::failed, 0, EFBIG};
  if (needs > max_bytes) return {PackAppend::no_room, needs};
  std::uint64_t at = begin;
  bool written = true;
  for (const PackPiece piece : pieces) {
    written = written && write_at(data_, at, piece.data(), piece.size());
    at += pack_aligned(piece.size());
  }
  const auto record = PackRecord::of(key, {begin, pieces.front().size(), end - begin, sum.value()});
  if (written && write_at(index_, number * sizeof(record), &record, sizeof(record)))
    return {PackAppend::stored};
  const int reason = errno;
  cut(index_, number * sizeof(record));
  cut(data_, begin);
  return {PackAppend::failed, 0, reason};
}

}  // namespace looptorch::detail
