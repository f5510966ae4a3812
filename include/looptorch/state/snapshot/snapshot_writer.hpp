// SPDX-License-Identifier: MIT
// Writes snapshots on a thread of its own from a copy in host memory. Training pauses only for the copy
// (about 0.1 s per gigabyte). The copy's memory is kept from the first snapshot on.
#pragma once

#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/state/snapshot/snapshot.hpp>
#include <looptorch/state/snapshot/snapshot_image.hpp>
#include <looptorch/state/snapshot/staging.hpp>

#include <c10/util/ScopeExit.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace looptorch {

namespace detail {

/// A call on a thread of its own. Compiles in a fraction of std::async's time.
class BackgroundCall {
 public:
  BackgroundCall() = default;
  BackgroundCall(const BackgroundCall&) = delete;
  BackgroundCall& operator=(const BackgroundCall&) = delete;
  /// Blocks until the call has ended.
  ~BackgroundCall() {
    if (thread_.joinable()) thread_.join();
  }

  /// Begins a call. `finish` must have ended the one before.
  void begin(std::function<void()> work) {
    ended_ = false;
    thread_ = std::thread([this, work = std::move(work)] {
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
      ended_ = true;
    });
  }

  /// True between `begin` and `finish`.
  [[nodiscard]] bool begun() const { return thread_.joinable(); }
  [[nodiscard]] bool ended() const { return ended_; }

  /// Waits for the call's end. Throws what it threw.
  void finish() {
    thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::atomic<bool> ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace detail

/// The callbacks of a SnapshotWriter.
struct SnapshotWriterOptions {
  /// Called after each snapshot on the writing thread, for example to prune. What it throws is thrown on, of
  /// its own type, where an error of writing would be; the snapshot is written.
  std::function<void(const std::filesystem::path&)> on_written{};
  /// Called when the writer is destroyed with an error that no call has thrown yet. Without it the message
  /// goes to stderr.
  std::function<void(const std::string&)> on_lost_error{};
};

/// Writes one snapshot at a time in the background. An error of writing, always a SnapshotError, is thrown
/// once, by the next call of `begin`, `poll` or `wait`. Earlier snapshots are untouched. Use it from one
/// thread.
class SnapshotWriter {
 public:
  explicit SnapshotWriter(std::filesystem::path folder, SnapshotWriterOptions options = {})
      : folder_(std::move(folder)), options_(std::move(options)) {}
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;
  /// Blocks until the snapshot that is being written is finished.
  ~SnapshotWriter();

  /// Reserves memory for such contents in the background. Without it the first `begin` takes that time,
  /// several times as long as the copy. Waits for the snapshot that is being written, and throws its error.
  /// An error of the reservation is thrown by the next `begin` or `wait`. Throws SnapshotError for tensors
  /// and names that a snapshot cannot hold.
  void prepare(const SnapshotContents& contents);

  /// Copies the contents, which may then change, and begins to write them. First waits for the previous
  /// snapshot, and returns what `wait` would return; if that one failed, throws its error and begins nothing.
  /// Throws SnapshotError also for tensors and names that a snapshot cannot hold, and if there is no memory
  /// for the copy. Files that would be too long to be read are an error of writing. Throws UsageError for a
  /// step below 0.
  std::optional<std::filesystem::path> begin(const SnapshotContents& contents);

  /// Returns the snapshot that has been written since the last `poll` or `wait`, if any. Does not wait.
  std::optional<std::filesystem::path> poll();

  /// Waits for the snapshot that is being written, then returns what `poll` would.
  std::optional<std::filesystem::path> wait();

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  /// Runs a part of writing a snapshot. Errors of the system, the standard library and LibTorch become a
  /// SnapshotError that names `path`.
  template <class Work>
  static auto typed(const std::filesystem::path& path, Work&& work) -> decltype(work());

  void report(const std::string& error) const;

  std::filesystem::path folder_;
  SnapshotWriterOptions options_;
  detail::Staging staging_;
  std::filesystem::path target_;                   // what writing_ writes
  std::optional<std::filesystem::path> finished_;  // that no call has returned yet
  detail::BackgroundCall preparing_, writing_;
};

template <class Work>
auto SnapshotWriter::typed(const std::filesystem::path& path, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw SnapshotError(
        message(path.string(), ": cannot write a snapshot: ", detail::what_of(std::current_exception())));
  }
}

inline void SnapshotWriter::prepare(const SnapshotContents& contents) {
  finished_ = wait();
  typed(folder_, [&] {
    (void)detail::snapshot_path(folder_, contents);
    preparing_.begin([this, contents] { typed(folder_, [&] { staging_.reserve(contents); }); });
  });
}

inline std::optional<std::filesystem::path> SnapshotWriter::begin(const SnapshotContents& contents) {
  auto left = c10::make_scope_exit([&] {
    for (const std::filesystem::path& shard : contents.shards) detail::remove_shard(shard);
  });
  auto finished = wait();
  typed(folder_, [&] {
    target_ = detail::snapshot_path(folder_, contents);
    writing_.begin([this, staged = staging_.copy(contents)] {
      typed(target_, [&] {
        staging_.wait_for_devices();
        (void)write_snapshot(folder_, staged);
      });
      if (options_.on_written) options_.on_written(target_);
    });
  });
  left.release();  // write_snapshot removes them if it fails
  return finished;
}

inline std::optional<std::filesystem::path> SnapshotWriter::poll() {
  return finished_ || (writing_.begun() && writing_.ended()) ? wait() : std::nullopt;
}

inline std::optional<std::filesystem::path> SnapshotWriter::wait() {
  if (preparing_.begun()) preparing_.finish();
  if (!writing_.begun()) return std::exchange(finished_, std::nullopt);
  writing_.finish();
  return target_;
}

inline void SnapshotWriter::report(const std::string& error) const {
  if (options_.on_lost_error) return options_.on_lost_error(error);
  std::fputs(detail::own_line(stderr, "looptorch: " + error).c_str(), stderr);
}

inline SnapshotWriter::~SnapshotWriter() {
  try {
    (void)wait();
  } catch (...) {
    report(detail::what_of(std::current_exception()));
  }
}

}  // namespace looptorch
