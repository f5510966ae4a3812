// SPDX-License-Identifier: MIT
// Checks the output files and folders that a program's flags name, before the program spends time on their
// contents: no output may replace an input or another output, and each must be writable. `require_written`
// checks afterwards that another program, such as espeak-ng, has written its file.
//
//   app::require_distinct_files({{"summary", options.summary}}, {{"manifest", options.manifest}});
//   app::create_output_folder("output", options.output);
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace looptorch::app {

/// A file or folder, and the flag that names it, without hyphens. An empty path is that of a flag that was
/// not given.
struct NamedPath {
  std::string flag;
  std::filesystem::path path;
};

namespace detail {

/// True if both name one file, which may not exist yet.
[[nodiscard]] inline bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  const auto whole = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  };
  const auto whole_a = whole(a), whole_b = whole(b);
  return !whole_a.empty() && whole_a == whole_b;
}

/// Throws CommandLineError unless a file can be created in the output's folder, or replaced there.
inline void require_writable(const NamedPath& output) {
  const auto refuse = [&](const auto&... why) {
    throw CommandLineError(message("--", output.flag, ' ', output.path.string(), ": ", why...));
  };
  std::error_code error;
  const auto parent = output.path.has_parent_path() ? output.path.parent_path() : std::filesystem::path(".");
  if (std::filesystem::is_directory(output.path, error)) refuse("is a folder, and a file is to be written");
  if (!std::filesystem::is_directory(parent, error)) refuse("there is no folder ", parent.string());
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    refuse("nothing can be written there: ", std::generic_category().message(errno));
}

}  // namespace detail

/// Throws CommandLineError, with the flags, for an output that is the same file as an input or another
/// output, or that cannot be written. Creates nothing.
inline void require_distinct_files(const std::vector<NamedPath>& outputs,
                                   const std::vector<NamedPath>& inputs = {}) {
  const auto compare = [](const NamedPath& output, const NamedPath& other, const char* why) {
    if (!other.path.empty() && detail::is_same_file(output.path, other.path))
      throw CommandLineError(message("--", output.flag, " and --", other.flag, " name the same file, ",
                                     output.path.string(), why));
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& output = outputs[i];
    if (output.path.empty()) continue;
    for (const auto& input : inputs)
      compare(output, input, ", which the result would replace: give it another name");
    for (std::size_t j = i + 1; j < outputs.size(); ++j)
      compare(output, outputs[j], ": give each result a name of its own");
    detail::require_writable(output);
  }
}

/// Creates a folder for results, and those above it. Throws CommandLineError, with the flag, if it cannot.
inline void create_output_folder(const std::string& flag, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (std::filesystem::is_directory(folder)) return;
  if (!error) error = std::make_error_code(std::errc::not_a_directory);
  throw CommandLineError(
      message("--", flag, ": cannot create the folder ", folder.string(), ": ", error.message()));
}

/// Throws FileError if `file`, which another program should have written, has at most `header` bytes, or if
/// its disk is full, so that its end may be missing: programs like espeak-ng do not notice a failed write.
inline void require_written(const std::filesystem::path& file, std::uintmax_t header = 0) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  const bool is_cut = !error && size <= header;
  const auto left = std::filesystem::space(file, error).available;
  if (error || is_cut || left == 0)
    throw FileError(
        message(file.string(), ": could not be written", !error && left == 0 ? ": the disk is full" : ""));
}

}  // namespace looptorch::app
