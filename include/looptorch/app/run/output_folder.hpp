// SPDX-License-Identifier: MIT
// Locks the output folder of a training program for the duration of the run, so that no second run writes
// into it:
//
//   const app::OutputFolder folder(options.output, {options.data});
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/folder_lock.hpp>
#include <looptorch/base/rank_environment.hpp>

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <system_error>

namespace looptorch::app {

/// Creates and locks a run's output folder. On destruction it removes the folder if it created it and it is
/// still empty, as after a refused run. On several ranks rank 0 does this for all.
class OutputFolder {
 public:
  /// `read` are folders of which the run reads every table or clip, and into which it must not write. Throws
  /// UsageError for an output folder that is one of these, is locked by another run, or cannot be created.
  explicit OutputFolder(const std::filesystem::path& folder,
                        std::initializer_list<std::filesystem::path> read = {})
      : folder_(folder) {
    if (rank_environment().rank != 0) return;
    for (const auto& each : read) {
      std::error_code none;
      if (std::filesystem::equivalent(folder, each, none))
        throw UsageError(message(folder.string(),
                                 ": is the folder of the data, and the next run would read what "
                                 "this one writes there: choose another folder for the output"));
    }
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
  std::filesystem::path folder_;
  bool is_new_ = false;
  std::optional<looptorch::detail::FolderLock> lock_;
};

}  // namespace looptorch::app
