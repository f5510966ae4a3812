// SPDX-License-Identifier: MIT
// Writes a run's TensorBoard events, each process to a file of its own. When a run resumes, the events of
// steps that it will repeat are removed from earlier files.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/report/appended_file.hpp>
#include <looptorch/report/tensorboard/events.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::report {

namespace detail {

inline constexpr std::string_view kEventPrefix = "events.out.tfevents.", kEventSuffix = ".looptorch";

/// Returns the event files that looptorch has written into `folder`, oldest first.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kEventPrefix) && name.ends_with(kEventSuffix)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns the records of `events` up to `last_step`, and how many they are.
inline std::pair<std::string, std::int64_t> kept_events(std::string_view events, std::int64_t last_step) {
  std::string kept;
  std::int64_t count = 0;
  for (std::string_view rest = events; const auto event = take_record(rest);)
    if (step_of_event(*event) <= last_step) kept += record_of(*event), ++count;
  return {kept, count};
}

/// Drops the events after `last_step` from a file, and an unfinished one of a killed process. Removes a file
/// in which nothing but its version would remain.
inline void keep_events(const std::filesystem::path& file, std::int64_t last_step) {
  const std::string events = read_file(file);
  const auto [kept, count] = kept_events(events, last_step);
  std::error_code error;
  if (count <= 1)
    std::filesystem::remove(file, error);
  else if (kept.size() != events.size())
    write_file_atomically(file, kept);
  if (error) looptorch::detail::throw_file_error(file, "cannot remove", error.value());
}

}  // namespace detail

/// The event file that this process adds to a folder.
class EventFile {
 public:
  /// Keeps earlier events up to `last_step`; -1 keeps none. `seconds` is the time since 1970. Throws
  /// FileError.
  EventFile(const std::filesystem::path& folder, std::int64_t last_step, double seconds)
      : file_(new_name(folder, seconds)) {
    for (const auto& earlier : detail::event_files(folder)) detail::keep_events(earlier, last_step);
    file_.append(version_event(seconds));
  }

  /// Appends records. Throws FileError.
  void append(std::string_view records) { file_.append(records); }

  /// See AppendedFile.
  void close() { file_.close(); }
  [[nodiscard]] bool is_as_left() const { return file_.is_as_left(); }

 private:
  /// Returns a name that sorts after earlier ones, since TensorBoard reads files in their names' order.
  static std::filesystem::path new_name(const std::filesystem::path& folder, double seconds) {
    const auto name = [&](int number) {
      std::string text = std::to_string(static_cast<std::int64_t>(seconds)) + '.' + std::to_string(number);
      return folder / (std::string(detail::kEventPrefix) + text + '.' + std::to_string(::getpid()) +
                       std::string(detail::kEventSuffix));
    };
    int number = 0;
    std::error_code ignored;
    while (std::filesystem::exists(name(number), ignored)) ++number;
    return name(number);
  }

  AppendedFile file_;
};

}  // namespace looptorch::report
