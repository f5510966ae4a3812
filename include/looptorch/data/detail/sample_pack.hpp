// SPDX-License-Identifier: MIT
// Where a cache keeps its samples: NAME.data, one sample behind the other, and NAME.index, a record of 64
// bytes for each, which is written behind its data. So a sample is there as a whole or not at all, whenever a
// process is killed, without a sync of the disk; what a power failure loses, checksums find. Any number of
// processes and threads read and append at once: appending takes a lock on the index.
#pragma once

#include <looptorch/data/detail/pack_entry.hpp>
#include <looptorch/error.hpp>
#include <looptorch/state/detail/checksum.hpp>
#include <looptorch/state/file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

class SamplePack {
 public:
  /// `name`: the files' path without `.data` and `.index`. Makes them; read-only files are read. Throws
  /// FileError where they cannot be opened.
  explicit SamplePack(const std::filesystem::path& name);

  /// Also finds what other processes have added since.
  std::optional<PackEntry> find(const PackKey& key);

  /// Reads `size` bytes from `offset` on; false where the file ends before or the disk fails.
  bool read(std::uint64_t offset, void* data, std::size_t size) const;

  /// An entry that has turned out to be damaged; the next `append` of this key replaces it.
  void forget(const PackKey& key, const PackEntry& damaged);

  /// Adds a sample, unless another process has meanwhile. `no_room` where both files would exceed
  /// `max_bytes`, `failed` where they cannot be written.
  PackAppend append(const PackKey& key, std::span<const PackPiece> pieces, std::uint64_t max_bytes);

  /// Of both files, what other processes have written included.
  std::uint64_t bytes() const;

  /// Records in the index that were damaged when they were read.
  std::uint64_t damaged_records() const;

 private:
  struct Record {
    std::uint64_t magic;
    PackKey key;
    PackEntry entry;
    std::uint64_t checksum;
  };
  static_assert(sizeof(Record) == 64);
  struct KeyHash {
    std::size_t operator()(const PackKey& key) const { return static_cast<std::size_t>(key.low); }
  };
  class Lock;

  static constexpr std::uint64_t kMagic = 0x31304b4341504c54U;  // "TLPACK01"

  FileDescriptor open(const std::filesystem::path& path);
  static std::uint64_t size_of(const FileDescriptor& file);
  static std::uint64_t checksum_of(const Record& record);
  static bool write_at(const FileDescriptor& file, std::uint64_t offset, const void* data, std::size_t size);

  static void cut(const FileDescriptor& file, std::uint64_t size);

  std::optional<PackEntry> known(const PackKey& key) const;
  bool has_news() const;
  void take_news();
  void take(const Record& record);
  void forget_all();
  PackAppend write(const PackKey& key, std::span<const PackPiece> pieces, std::uint64_t max_bytes);

  const std::filesystem::path name_;
  bool writable_ = true;
  const FileDescriptor data_, index_;
  mutable std::shared_mutex mutex_;  // guards what follows; held alone while the file lock is
  std::unordered_map<PackKey, PackEntry, KeyHash> entries_;
  std::uint64_t seen_ = 0;  // bytes of the index that are in entries_
  std::uint64_t damaged_ = 0;
};

/// This thread alone among those of the process and among processes.
class SamplePack::Lock {
 public:
  explicit Lock(const SamplePack& pack) : own_(pack.mutex_), file_(pack.index_.get()) {
    while (::flock(file_, LOCK_EX) != 0)
      if (errno != EINTR) throw_file_error(pack.name_, "cannot lock the index", errno);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { ::flock(file_, LOCK_UN); }

 private:
  std::unique_lock<std::shared_mutex> own_;
  int file_;
};

inline SamplePack::SamplePack(const std::filesystem::path& name)
    : name_(name), data_(open(name.string() + ".data")), index_(open(name.string() + ".index")) {
  const Lock lock(*this);
  take_news();
}

inline FileDescriptor SamplePack::open(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  const int reason = errno;
  if (file.get() < 0 && (reason == EACCES || reason == EROFS)) {
    writable_ = false;
    file = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  if (file.get() < 0) throw_file_error(path, "cannot open", reason);
  return file;
}

inline std::uint64_t SamplePack::size_of(const FileDescriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

inline std::uint64_t SamplePack::checksum_of(const Record& record) {
  Checksum sum;
  sum.add(&record, offsetof(Record, checksum));
  return sum.value();
}

inline std::uint64_t SamplePack::bytes() const { return size_of(data_) + size_of(index_); }

inline std::uint64_t SamplePack::damaged_records() const {
  const std::shared_lock lock(mutex_);
  return damaged_;
}

inline std::optional<PackEntry> SamplePack::known(const PackKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

inline std::optional<PackEntry> SamplePack::find(const PackKey& key) {
  {
    const std::shared_lock lock(mutex_);
    if (const auto entry = known(key); entry || !has_news()) return entry;
  }
  const Lock lock(*this);
  take_news();
  return known(key);
}

inline bool SamplePack::has_news() const {
  return size_of(index_) / sizeof(Record) != seen_ / sizeof(Record);
}

/// Under the lock nobody is writing, so that a part of a record at the end is a killed writer's.
inline void SamplePack::take_news() {
  const std::uint64_t size = size_of(index_) / sizeof(Record) * sizeof(Record);
  if (size < seen_) forget_all();  // somebody has emptied the cache
  constexpr std::size_t kAtOnce = 4096;
  std::vector<Record> records;
  while (seen_ < size) {
    records.resize(std::min<std::size_t>(kAtOnce, static_cast<std::size_t>((size - seen_) / sizeof(Record))));
    const std::size_t bytes = records.size() * sizeof(Record);
    const auto got = ::pread(index_.get(), records.data(), bytes, static_cast<off_t>(seen_));
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(bytes)) throw_file_error(name_, "cannot read the index", errno);
    for (const Record& record : records) take(record);
    seen_ += bytes;
  }
}

inline void SamplePack::take(const Record& record) {
  if (record.magic == kMagic && record.checksum == checksum_of(record))
    entries_.insert_or_assign(record.key, record.entry);
  else
    ++damaged_;
}

inline void SamplePack::forget_all() {
  entries_.clear();
  seen_ = 0;
}

inline void SamplePack::forget(const PackKey& key, const PackEntry& damaged) {
  const std::unique_lock lock(mutex_);
  if (known(key) == damaged) entries_.erase(key);
}

inline bool SamplePack::read(std::uint64_t offset, void* data, std::size_t size) const {
  auto* out = static_cast<char*>(data);
  while (size > 0) {
    const auto got = ::pread(data_.get(), out, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

inline bool SamplePack::write_at(const FileDescriptor& file, std::uint64_t offset, const void* data,
                                 std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto put = ::pwrite(file.get(), bytes, size, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    offset += static_cast<std::uint64_t>(put);
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

/// Where even that fails a part of a sample stays, without a record: nobody will read it.
inline void SamplePack::cut(const FileDescriptor& file, std::uint64_t size) {
  [[maybe_unused]] const int failed = ::ftruncate(file.get(), static_cast<off_t>(size));
}

inline PackAppend SamplePack::append(const PackKey& key, std::span<const PackPiece> pieces,
                                     std::uint64_t max_bytes) {
  if (!writable_) return PackAppend::failed;
  const Lock lock(*this);
  take_news();
  return known(key) ? PackAppend::stored : write(key, pieces, max_bytes);
}

/// The record comes last: without it the data do not exist. What was begun and failed is taken back.
inline PackAppend SamplePack::write(const PackKey& key, std::span<const PackPiece> pieces,
                                    std::uint64_t max_bytes) {
  const std::uint64_t begin = pack_aligned(size_of(data_));
  Checksum sum;
  std::uint64_t end = begin;
  for (const PackPiece piece : pieces) {
    sum.add(piece.data(), piece.size());
    end += pack_aligned(piece.size());
  }
  if (end + seen_ + sizeof(Record) > max_bytes) return PackAppend::no_room;
  std::uint64_t at = begin;
  bool written = true;
  for (const PackPiece piece : pieces) {
    written = written && write_at(data_, at, piece.data(), piece.size());
    at += pack_aligned(piece.size());
  }
  Record record{kMagic, key, {begin, pieces.front().size(), end - begin, sum.value()}, 0};
  record.checksum = checksum_of(record);
  if (!written || !write_at(index_, seen_, &record, sizeof(record))) {
    cut(index_, seen_);
    cut(data_, begin);
    return PackAppend::failed;
  }
  take(record);
  seen_ += sizeof(Record);
  return PackAppend::stored;
}

}  // namespace looptorch::detail
