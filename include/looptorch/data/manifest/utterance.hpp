// SPDX-License-Identifier: MIT
// Declares Utterance, one line of a manifest or one segment of a transcript, and ManifestError, which readers
// of such files throw.
#pragma once

#include <looptorch/base/error.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace looptorch {

/// Thrown for a manifest that cannot be used. The message begins with the file, and the line if there is one.
struct ManifestError : Error {
  using Error::Error;
};

/// One line of a manifest. The members are named like its keys.
struct Utterance {
  std::filesystem::path audio_filepath;
  std::string text;
  std::optional<double> duration{};  ///< seconds
  std::optional<double> start{};     ///< seconds in the audio file; absent: its beginning
  std::optional<double> end{};       ///< seconds; absent: the file's end
  std::string speaker{};             ///< empty if the line has none
  std::string language{};            ///< such as "de"; empty if the line has none

  friend bool operator==(const Utterance&, const Utterance&) = default;
};

}  // namespace looptorch
