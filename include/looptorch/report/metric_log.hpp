// SPDX-License-Identifier: MIT
// Writes a run's metrics on a thread of its own; read this header first. The training thread hands rows over
// and never waits. A metric goes from LogMetrics (policies/) to MetricLog, and from there to MetricFiles
// (CSV, JSON Lines, TensorBoard) and RunReport (report.html).
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/report/metric_files.hpp>
#include <looptorch/report/metric_row.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch::report {

/// Writes what is handed over, in order. A file that cannot be written, as on a full disk, does not end the
/// training: the log reports it once on stderr and writes no more. If only `after_rows` fails, the log goes
/// on without it.
class MetricLog {
 public:
  /// Continues the files after `last_step`. `after_rows`, if given, runs on the thread whenever rows were
  /// written, and as the log ends with `last` true. Throws FileError.
  MetricLog(const std::filesystem::path& folder, std::int64_t last_step, MetricFormats formats,
            std::function<void(MetricFiles&, bool last)> after_rows = {})
      : MetricLog(std::make_shared<MetricFiles>(folder, last_step, formats), std::move(after_rows)) {}
  /// Continues these files, which the thread alone uses until the log is destroyed.
  explicit MetricLog(std::shared_ptr<MetricFiles> files,
                     std::function<void(MetricFiles&, bool last)> after_rows = {})
      : files_(std::move(files)),
        seconds_at_begin_(files_->seconds()),
        after_rows_(std::move(after_rows)),
        thread_([this] { write_all(); }) {}
  MetricLog(const MetricLog&) = delete;
  MetricLog& operator=(const MetricLog&) = delete;
  /// Writes all that was handed over, closes the files unless one could not be written, and ends the thread.
  ~MetricLog() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Returns the time in training up to the last row that the files had before.
  [[nodiscard]] double seconds_at_begin() const { return seconds_at_begin_; }

  /// Hands rows over.
  void add(RowBatch rows) {
    add([this, rows = std::move(rows)]() mutable { write(rows); });
  }
  /// Hands over a task, such as writing an example; it runs on the log's thread.
  void add(std::function<void(MetricFiles&)> task) {
    add([this, task = std::move(task)] { task(*files_); });
  }
  /// Blocks until everything that was handed over is written.
  void flush() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return tasks_.empty() && !writes_; });
  }

 private:
  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  void write_all() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return !tasks_.empty() || ends_; });
      if (tasks_.empty()) break;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      writes_ = true;
      lock.unlock();
      guarded(task);
      lock.lock();
      writes_ = false;
      if (tasks_.empty()) idle_.notify_all();
    }
    if (failed_) return;
    show(true);
    files_->close();
  }

  template <class Task>
  void guarded(const Task& task) {
    if (failed_) return;
    try {
      task();
    } catch (const std::exception& error) {
      failed_ = true;
      report(error, ". The run goes on, and no more of them are written");
    }
  }

  void show(bool last) {
    if (!after_rows_) return;
    try {
      after_rows_(*files_, last);
    } catch (const std::exception& error) {
      after_rows_ = {};
      report(error, ". The run goes on without this page");
    }
  }

  static void report(const std::exception& error, const char* consequence) {
    const auto text = message("metrics: ", error.what(), consequence);
    std::fputs(looptorch::detail::own_line(stderr, text).c_str(), stderr);
  }

  void write(const RowBatch& batch) {
    for (const std::string& name : batch.new_names) ids_.push_back(files_->names().id(written_name(name)));
    while (batch.slots && !batch.slots->arrived()) std::this_thread::sleep_for(kPause);
    std::vector<MetricRow> rows;
    for (const UnreadRow& unread : batch.rows) {
      rows.push_back(read_row(unread, batch.slots.get()));
      for (auto& [id, value] : rows.back().values) id = ids_[id];
    }
    files_->add(rows);
    show(false);
  }

  static constexpr std::chrono::microseconds kPause{100};

  std::shared_ptr<MetricFiles> files_;
  double seconds_at_begin_;
  std::function<void(MetricFiles&, bool)> after_rows_;
  std::vector<MetricId> ids_;  // the files' ids, by the ids in the rows handed over
  bool failed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::function<void()>> tasks_;
  bool writes_ = false, ends_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace looptorch::report
