// SPDX-License-Identifier: MIT
// Writes a run's metrics to metrics.jsonl, metrics.csv and TensorBoard's event files. If a run resumes, the
// rows of steps that it will repeat are dropped, and the files are continued.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/output_file.hpp>
#include <looptorch/report/appended_file.hpp>
#include <looptorch/report/event_file.hpp>
#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/metric_row.hpp>
#include <looptorch/report/run_history.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::report {

/// Selects the files to write.
struct MetricFormats {
  bool csv = true;
  bool tensorboard = true;
  bool operator==(const MetricFormats&) const = default;
};

/// Returns the time since 1970-01-01, UTC.
[[nodiscard]] inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The metric files of a folder, and the history of the rows that were written to them. For one thread.
class MetricFiles {
 public:
  /// Continues the files in `folder`, which it creates if needed, after `last_step`; a `last_step` of 0
  /// starts again. Throws FileError.
  MetricFiles(const std::filesystem::path& folder, std::int64_t last_step, MetricFormats formats)
      : jsonl_(folder / "metrics.jsonl"), csv_(folder / "metrics.csv"), formats_(formats) {
    looptorch::detail::make_folders(folder);
    const std::string lines = read_rows(last_step);
    began_ = unix_seconds() - seconds();
    if (formats.csv) write_csv(lines);
    if (formats.tensorboard) events_.emplace(folder, last_step > 0 ? last_step : -1, unix_seconds());
  }

  /// Appends rows to all files. Skips values that a step of an earlier row has already: a run that resumes
  /// from a snapshot at an epoch's end measures some of it again. Throws FileError.
  void add(std::vector<MetricRow> rows) {
    for (MetricRow& row : rows) drop_known(row);
    std::erase_if(rows, [](const MetricRow& row) { return row.values.empty(); });
    std::string lines, table, events;
    const bool more_columns = formats_.csv && columns_ != names_.size();
    for (const MetricRow& row : rows) {
      lines += json_line(row, names_);
      if (formats_.csv) table += csv_line(row, names_.size());
      if (events_) events += events_of(row);
    }
    for (MetricRow& row : rows) take(std::move(row));
    jsonl_.append(lines);
    if (more_columns)
      write_csv(written_lines());
    else
      csv_.append(table);
    if (events_) events_->append(events);
  }

  /// Appends TensorBoard's records of anything but rows. Throws FileError.
  void add_events(std::string_view records) {
    if (events_) events_->append(records);
  }

  /// Closes the files. `continue_in` continues them.
  void close() {
    for (AppendedFile* file : {&jsonl_, &csv_}) file->close();
    if (events_) events_->close();
    closed_ = true;
  }
  /// Continues closed files as the constructor does, without reading them. Returns false if only a new
  /// MetricFiles can continue: in another folder or other formats, if there are rows of later steps, or if
  /// something else has changed the files.
  [[nodiscard]] bool continue_in(const std::filesystem::path& folder, std::int64_t last_step,
                                 MetricFormats formats) {
    const bool was_closed = std::exchange(closed_, false);
    began_ = unix_seconds() - seconds();
    return was_closed && last_step > 0 && !history_.is_empty() && history_.last_step() <= last_step &&
           jsonl_.path() == folder / "metrics.jsonl" && formats == formats_ && jsonl_.is_as_left() &&
           (!formats_.csv || csv_.is_as_left()) && (!events_ || events_->is_as_left());
  }

  [[nodiscard]] MetricNames& names() { return names_; }
  /// Returns the history of the run, earlier processes included.
  [[nodiscard]] const RunHistory& history() const { return history_; }
  /// Returns the time in training up to the last row.
  [[nodiscard]] double seconds() const { return history_.seconds(); }
  /// Returns when a row was made, in seconds since 1970.
  [[nodiscard]] double time_of(const MetricRow& row) const { return began_ + row.seconds; }

 private:
  void drop_known(MetricRow& row) const {
    for (const MetricRow& known : newest_)
      std::erase_if(row.values, [&](const auto& value) {
        return known.step == row.step &&
               std::any_of(known.values.begin(), known.values.end(),
                           [&](const auto& old) { return old.first == value.first; });
      });
  }

  void take(MetricRow row) {
    history_.add(row, names_);
    if (!newest_.empty() && newest_.back().step != row.step) newest_.clear();
    newest_.push_back(std::move(row));
  }

  /// Returns the lines of metrics.jsonl, which is missing before the first row.
  [[nodiscard]] std::string written_lines() const {
    return looptorch::detail::may_exist(jsonl_.path()) ? read_file(jsonl_.path()) : std::string();
  }

  /// Reads the rows up to `last_step`, and rewrites the file if it has more. Returns its lines.
  [[nodiscard]] std::string read_rows(std::int64_t last_step) {
    const std::string text = written_lines();
    std::string kept;
    for (std::string_view rest = text; last_step > 0 && !rest.empty();) {
      const auto end = rest.find('\n');
      if (end == std::string_view::npos) break;  // a killed process has left it unfinished
      auto row = read_json_line(rest.substr(0, end), names_);
      if (row && row->step <= last_step) {
        kept += rest.substr(0, end + 1);
        take(*std::move(row));
      }
      rest.remove_prefix(end + 1);
    }
    if (kept.size() != text.size()) jsonl_.replace(kept);
    return kept;
  }

  /// Writes metrics.csv with all rows, which are given as lines of metrics.jsonl.
  void write_csv(std::string_view lines) {
    columns_ = names_.size();
    std::string table = csv_header(names_);
    while (!lines.empty()) {
      const auto end = lines.find('\n');
      if (const auto row = read_json_line(lines.substr(0, end), names_)) table += csv_line(*row, columns_);
      lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    }
    csv_.replace(table);
  }

  [[nodiscard]] std::string events_of(const MetricRow& row) const {
    std::string records;
    for (const auto& [id, value] : row.values)
      records += scalar_event({time_of(row), row.step}, names_[id], value);
    return records;
  }

  AppendedFile jsonl_, csv_;
  MetricFormats formats_;
  std::optional<EventFile> events_;
  MetricNames names_;
  RunHistory history_;
  std::vector<MetricRow> newest_;  // of the last step
  std::size_t columns_ = 0;        // of the CSV file
  double began_ = 0;
  bool closed_ = false;  // with all rows in the files
};

}  // namespace looptorch::report
