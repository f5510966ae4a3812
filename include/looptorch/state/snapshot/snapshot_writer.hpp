// SPDX-License-Identifier: MIT
// Snapshots written by a thread of their own from a copy in host memory: training stands still for the copy
// only (about 0.1 s a gigabyte), and holds that much memory from the first snapshot on.
#pragma once

#include <looptorch/base/what_of.hpp>
#include <looptorch/state/snapshot/snapshot.hpp>
#include <looptorch/state/snapshot/snapshot_image.hpp>
#include <looptorch/state/snapshot/staging.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>

namespace looptorch {

/// How long `SnapshotWriter::begin` held up its caller.
struct SnapshotPause {
  double waited_ms = 0;  ///< For the snapshot before, which was still being written.
  double copied_ms = 0;
  /// That snapshot, unless `poll` or `wait` has told of it.
  std::optional<std::filesystem::path> finished{};
};

/// What a SnapshotWriter calls.
struct SnapshotWriterOptions {
  /// After each snapshot, on the writing thread: the place to prune. What it throws surfaces as errors of
  /// writing do.
  std::function<void(const std::filesystem::path&)> on_written{};
  /// With the message of an error that nobody has heard of when the writer is destroyed; else it goes to
  /// stderr.
  std::function<void(const std::string&)> on_lost_error{};
};

/// Writes one snapshot at a time in the background. An error of writing, SnapshotError whatever its cause, is
/// thrown by the next call of `begin`, `poll` or `wait`, once; the snapshots before are untouched. For one
/// thread.
class SnapshotWriter {
 public:
  explicit SnapshotWriter(std::filesystem::path folder, SnapshotWriterOptions options = {})
      : folder_(std::move(folder)), options_(std::move(options)) {}
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;
  /// Waits for what is being written.
  ~SnapshotWriter();

  /// Makes room in memory for such contents, in the background: else the first snapshot takes that time,
  /// which is several times that of the copy. Waits for what is being written; an error surfaces as those of
  /// writing do, at the next `begin` or `wait`. Throws SnapshotError for tensors and names that a snapshot
  /// cannot hold.
  void prepare(const SnapshotContents& contents);

  /// Copies the contents, which may then change, and begins to write them. Waits first for the snapshot
  /// before; if that failed, its error is thrown and nothing is begun. Throws SnapshotError as well for
  /// tensors and names that a snapshot cannot hold, and where there is no memory for the copy; files that
  /// would be too long to be read are an error of writing. UsageError for a step below 0.
  SnapshotPause begin(const SnapshotContents& contents);

  /// The snapshot that has been written since the last `poll` or `wait`, if any; does not wait.
  std::optional<std::filesystem::path> poll();

  /// The same; waits for what is being written.
  std::optional<std::filesystem::path> wait();

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  /// Does a part of what a snapshot takes. What the system, the standard library or LibTorch throws there
  /// becomes a SnapshotError that names `path`.
  template <class Work>
  static auto typed(const std::filesystem::path& path, Work&& work) -> decltype(work());

  void report(const std::string& error) const;

  std::filesystem::path folder_;
  SnapshotWriterOptions options_;
  detail::Staging staging_;
  std::future<void> preparing_;
  std::future<std::filesystem::path> writing_;
};

namespace detail {

/// Milliseconds that `work` takes.
template <class Work>
double time_ms(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace detail

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
  (void)wait();
  typed(folder_, [&] {
    (void)detail::snapshot_path(folder_, contents);
    preparing_ = std::async(std::launch::async,
                            [this, contents] { typed(folder_, [&] { staging_.reserve(contents); }); });
  });
}

inline SnapshotPause SnapshotWriter::begin(const SnapshotContents& contents) {
  SnapshotPause pause;
  pause.waited_ms = detail::time_ms([&] { pause.finished = wait(); });
  typed(folder_, [&] {
    const auto target = detail::snapshot_path(folder_, contents);
    SnapshotContents staged;
    pause.copied_ms = detail::time_ms([&] { staged = staging_.copy(contents); });
    writing_ = std::async(std::launch::async, [this, target, staged = std::move(staged)] {
      typed(target, [&] {
        staging_.wait_for_devices();
        (void)write_snapshot(folder_, staged);
      });
      if (options_.on_written) options_.on_written(target);
      return target;
    });
  });
  return pause;
}

inline std::optional<std::filesystem::path> SnapshotWriter::poll() {
  const bool is_done =
      writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return is_done ? wait() : std::nullopt;
}

inline std::optional<std::filesystem::path> SnapshotWriter::wait() {
  if (preparing_.valid()) preparing_.get();
  return writing_.valid() ? std::optional(writing_.get()) : std::nullopt;
}

inline void SnapshotWriter::report(const std::string& error) const {
  if (options_.on_lost_error) return options_.on_lost_error(error);
  std::fprintf(stderr, "looptorch: %s\n", error.c_str());
}

inline SnapshotWriter::~SnapshotWriter() {
  try {
    (void)wait();
  } catch (...) {
    report(detail::what_of(std::current_exception()));
  }
}

}  // namespace looptorch
