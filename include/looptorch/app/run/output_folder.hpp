// SPDX-License-Identifier: MIT
// Locks the output folder of a training program for the duration of the run, so that no second run writes
// into it:
//
//   const app::OutputFolder folder(options.output, {options.data});
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/folder_lock.hpp>
#include <looptorch/base/process/rank_environment.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace looptorch::app {
namespace detail {

/// True if `output` is `path`, or a folder in which `path` lies, by its name or behind a symbolic link.
[[nodiscard]] inline bool is_or_holds(const std::filesystem::path& output,
                                      const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  fs::path folder = fs::weakly_canonical(fs::absolute(output, none), none);
  if (!folder.has_filename()) folder = folder.parent_path();  // "run/" that is not there yet
  const auto lies_in = [&](const fs::path& whole) {
    return std::mismatch(folder.begin(), folder.end(), whole.begin(), whole.end()).first == folder.end();
  };
  const fs::path named = fs::absolute(path, none);
  return lies_in(fs::weakly_canonical(named.parent_path(), none) / named.filename()) ||
         lies_in(fs::weakly_canonical(named, none));
}

}  // namespace detail

/// Throws UsageError if `output`, a file or a folder, is `input` or holds it, so that writing it could
/// overwrite the input. `flag` names the input.
inline void require_apart(const std::filesystem::path& output, const std::string& flag,
                          const std::filesystem::path& input) {
  if (input.empty() || !detail::is_or_holds(output, input)) return;
  throw UsageError(message("--output ", output.string(), " would overwrite ", flag, " ", input.string(),
                           ": choose another place for the output"));
}

/// Creates and locks a run's output folder. On destruction it removes the folder if it created it and it is
/// still empty, as after a refused run. On several ranks rank 0 does this for all.
class OutputFolder {
 public:
  /// `read` are the files that the run reads, and the folders of which it reads every table or clip. Throws
  /// UsageError for an output folder that is one of these folders, holds one of these files, is locked by
  /// another run, or cannot be created.
  explicit OutputFolder(const std::filesystem::path& folder,
                        const std::vector<std::filesystem::path>& read = {})
      : folder_(folder) {
    if (rank_environment().rank != 0) return;
    for (const auto& each : read) require_not_read(each);
    try {
      is_new_ = std::filesystem::create_directories(folder);
    } catch (const std::filesystem::filesystem_error& error) {
      throw UsageError(
          message("--output ", folder.string(), ": this folder cannot be made: ", error.code().message()));
    }
    lock_.emplace(folder, "its results");
  }
  ~OutputFolder() {
    std::error_code not_empty;
    if (is_new_) std::filesystem::remove(folder_, not_empty);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  void require_not_read(const std::filesystem::path& read) const {
    std::error_code none;
    if (std::filesystem::equivalent(folder_, read, none))
      throw UsageError(message(folder_.string(),
                               ": is the folder of the data, and the next run would read what "
                               "this one writes there: choose another folder for the output"));
    if (std::filesystem::is_regular_file(read, none) && detail::is_or_holds(folder_, read))
      throw UsageError(message("--output ", folder_.string(), ": holds ", read.string(),
                               ", which the run reads and could overwrite: choose another folder for the "
                               "output"));
  }

  std::filesystem::path folder_;
  bool is_new_ = false;
  std::optional<looptorch::detail::FolderLock> lock_;
};

}  // namespace looptorch::app
