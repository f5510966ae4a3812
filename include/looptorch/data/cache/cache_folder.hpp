// SPDX-License-Identifier: MIT
// Keeps the samples of several caches in one folder under a common size limit. Each kind of sample has a
// pack, a pair of files (sample_pack.hpp). To make room, packs that no process has open are removed. A
// process holds a shared lock on NAME.lock while it has the pack NAME open.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/file_lock.hpp>
#include <looptorch/data/cache/cached_options.hpp>
#include <looptorch/data/cache/sample_pack.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::detail {

class CacheFolder {
 public:
  CacheFolder(const CacheOptions& options, const std::string& layout)
      : folder_(options.folder), max_bytes_(options.max_bytes), name_(name_of(options, layout)) {
    if (folder_.empty()) throw UsageError("CachedDataset: no folder was given");
    if (options.settings.empty())
      throw UsageError(
          "CachedDataset: no settings were given; name the dataset and what its samples depend on, such as "
          "\"clips, log-mel 80, 16 kHz\": datasets of equal settings in one folder read each other's samples");
    if (max_bytes_ < 0)
      throw UsageError(
          message("CachedDataset: max_bytes is ", max_bytes_, "; it must be 0 (no limit) or more"));
    make_folder();
    lock_ = open_lock(pack());
    lock_file(lock_.get(), LOCK_SH);  // if this fails, no other process can lock it exclusively either
    ::futimens(lock_.get(), nullptr);
    describe(options, layout);
    others_ = bytes_of_others();
  }

  /// Returns the path of this kind's pack, without its files' extensions.
  std::filesystem::path pack() const { return folder_ / name_; }

  /// Returns the bytes that this kind's pack may take.
  std::uint64_t allowance() const {
    if (max_bytes_ == 0) return std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t limit = static_cast<std::uint64_t>(max_bytes_), others = others_;
    return limit > others ? limit - others : 0;
  }

  /// Removes packs that no process has open, those opened longest ago first, until this one may take `bytes`.
  /// Returns false if it still may not. Scans the folder at most once in `kRescanInterval`.
  bool make_room(std::uint64_t bytes) {
    if (max_bytes_ == 0) return false;
    const std::lock_guard lock(mutex_);
    if (Clock::now() < next_scan_) return bytes <= allowance();
    for (const auto& pack : packs_by_age()) {
      if (bytes <= allowance()) return true;
      if (remove_unused(pack)) others_ = bytes_of_others();
    }
    next_scan_ = Clock::now() + kRescanInterval;
    return bytes <= allowance();
  }

 private:
  using Time = std::filesystem::file_time_type;
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kRescanInterval{30};

  static std::string name_of(const CacheOptions& options, const std::string& layout) {
    const PackKey key = pack_key(message(options.version, '|', layout, '|', options.settings));
    char hex[33];
    std::snprintf(hex, sizeof(hex), "%016llx%016llx", static_cast<unsigned long long>(key.high),
                  static_cast<unsigned long long>(key.low));
    return hex;
  }

  void make_folder() const {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) throw FileError(message(folder_.string(), ": cannot create: ", error.message()));
  }

  /// Opens the lock file. It stays closed if the folder is read-only, where no process can remove anything
  /// either.
  static FileDescriptor open_lock(const std::filesystem::path& pack) {
    const std::string path = pack.string() + ".lock";
    const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return FileDescriptor(made >= 0 ? made : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }

  /// Writes a description of the pack for people who inspect the folder.
  void describe(const CacheOptions& options, const std::string& layout) const {
    const std::filesystem::path path = pack().string() + ".txt";
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return;
    try {
      write_file_atomically(path, message("settings: ", options.settings, "\nversion: ", options.version,
                                          "\nsample: ", layout, "\n"));
    } catch (const FileError&) {  // a full or read-only disk: the cache works without it
    }
  }

  static std::uint64_t bytes_of(const std::filesystem::path& pack) {
    std::uint64_t bytes = 0;
    for (const char* end : {".data", ".index"}) {
      std::error_code missing;
      const auto size = std::filesystem::file_size(pack.string() + end, missing);
      bytes += missing ? 0 : size;
    }
    return bytes;
  }

  /// Returns the other packs of the folder, the one opened longest ago first.
  std::vector<std::filesystem::path> packs_by_age() const {
    std::vector<std::pair<Time, std::filesystem::path>> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() == ".lock" && path.stem() != name_)
        found.emplace_back(entry.last_write_time(error), folder_ / path.stem());
    }
    std::ranges::sort(found);
    std::vector<std::filesystem::path> packs;
    for (auto& [time, path] : found) packs.push_back(std::move(path));
    return packs;
  }

  std::uint64_t bytes_of_others() const {
    std::uint64_t bytes = 0;
    for (const auto& pack : packs_by_age()) bytes += bytes_of(pack);
    return bytes;
  }

  /// Removes a pack that no process has open. The lock file stays: a process that waits for it would
  /// otherwise hold a lock that no other sees.
  static bool remove_unused(const std::filesystem::path& pack) {
    const FileDescriptor lock = open_lock(pack);
    if (lock.get() < 0 || bytes_of(pack) == 0 || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
    std::error_code ignored;
    for (const char* end : {".index", ".data", ".txt"}) std::filesystem::remove(pack.string() + end, ignored);
    return true;
  }

  const std::filesystem::path folder_;
  const std::int64_t max_bytes_;
  const std::string name_;
  FileDescriptor lock_;
  std::mutex mutex_;  // guards next_scan_
  Clock::time_point next_scan_{};
  std::atomic<std::uint64_t> others_ = 0;
};

}  // namespace looptorch::detail
