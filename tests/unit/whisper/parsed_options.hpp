// SPDX-License-Identifier: MIT
// The options of a command line of whisper_finetune.
#pragma once

#include <whisper/training/flags.hpp>

#include <string>
#include <vector>

namespace whisper_test {

/// Parses flags beside those that are required.
inline whisper::FinetuneOptions parsed(std::vector<std::string> words) {
  whisper::FinetuneOptions options;
  looptorch::app::CommandLine line("whisper_finetune", "");
  whisper::add_flags(line, options);
  words.insert(words.begin(), {"whisper_finetune", "--model=m", "--output=o", "--transcripts=t"});
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const bool runs = line.parse(static_cast<int>(words.size()), argv.data());
  REQUIRE(runs);
  return options;
}

}  // namespace whisper_test
