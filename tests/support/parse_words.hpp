// SPDX-License-Identifier: MIT
// Parses the words of a command line, for tests of flags.
#pragma once

#include <looptorch/app/command_line.hpp>

#include <string>
#include <vector>

namespace looptorch::testing {

/// Parses `words` as those behind a program's name. Returns and throws what CommandLine::parse does.
inline bool parse_words(app::CommandLine& line, std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return line.parse(static_cast<int>(words.size()), argv.data());
}

}  // namespace looptorch::testing
