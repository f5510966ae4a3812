// SPDX-License-Identifier: MIT
// What is said where: one line of a manifest, one segment of a transcript.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace looptorch {

/// One line of a manifest; the members are called as its keys.
struct Utterance {
  std::filesystem::path audio_filepath;
  std::string text;
  std::optional<double> duration{};  ///< seconds
  std::optional<double> start{};     ///< seconds in the audio file; absent: its beginning
  std::optional<double> end{};       ///< seconds; absent: the file's end
  std::string speaker{};             ///< empty where the line has none

  friend bool operator==(const Utterance&, const Utterance&) = default;
};

}  // namespace looptorch
