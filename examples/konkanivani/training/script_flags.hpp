// SPDX-License-Identifier: MIT
// Accepts commands that were written for train_konkanivani_asr.py, the Python script that this example
// follows. A command with one of the script's flags, which have underscores, gets the script's settings
// (`--preset original`).
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace konkanivani {

/// Flags of the script. Only they have underscores; this example's pages and --help write hyphens.
inline constexpr std::array<std::string_view, 6> kScriptFlags{
    "--batch_size",    "--gradient_accumulation_steps", "--mixed_precision", "--d_model", "--encoder_layers",
    "--decoder_layers"};

/// The words of a command line, and the first flag of the script in it; empty if there is none.
struct ScriptWords {
  std::vector<std::string> words;
  std::string script_flag = {};

  /// Returns the words as main gets them, for as long as this object lives.
  [[nodiscard]] std::vector<char*> pointers() {
    std::vector<char*> all;
    for (auto& word : words) all.push_back(word.data());
    all.push_back(nullptr);
    return all;
  }
};

/// True for a flag, in full or shortened as the command line allows, but no shorter than `least`.
[[nodiscard]] inline bool is_short_for(std::string_view flag, std::string_view name, std::string_view least) {
  return name.starts_with(flag) && flag.starts_with(least);
}

/// Puts `--preset=original` before words that include one of kScriptFlags, unless they include `--preset`, or
/// `--config`, whose file names its run's preset if there was one.
[[nodiscard]] inline ScriptWords script_words(int argc, const char* const* argv) {
  ScriptWords read{.words = {argv, argv + argc}};
  const auto flag_of = [](std::string_view word) { return word.substr(0, word.find('=')); };
  for (const auto& word : read.words) {
    const auto flag = flag_of(word);
    if (flag == "--") break;
    if (is_short_for(flag, "--config", "--co") || is_short_for(flag, "--preset", "--pres"))
      return {.words = read.words};
    if (read.script_flag.empty() && std::ranges::find(kScriptFlags, flag) != kScriptFlags.end())
      read.script_flag = flag;
  }
  if (!read.script_flag.empty()) read.words.insert(read.words.begin() + 1, "--preset=original");
  return read;
}

}  // namespace konkanivani
