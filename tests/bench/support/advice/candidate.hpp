// SPDX-License-Identifier: MIT
// A model, and the command lines that might make its training fit: smaller micro-batches with more
// accumulation, and memory savings. The training program's own parser reads them, so that every advised flag
// exists.
#pragma once

#include <looptorch/app/command_line.hpp>

#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace looptorch_bench {

/// The last rank of a Saving: 0 trains all of the model, 1 freezes a part, 2 trains adapters, 3 adapters on
/// weights in 8 bits.
inline constexpr int kLastRank = 3;

/// What a run does to save memory.
struct Saving {
  std::string words;  ///< As the tables call it.
  std::string flags;  ///< Of the program; empty for nothing.
  int rank = 0;       ///< What it trains.
};

/// A step's samples, cut into micro-batches.
struct Window {
  std::int64_t batch = 1, accumulate = 1;
};

/// A model with the program that trains it.
struct Candidate {
  std::string name;
  std::string command;                   ///< The program, with flags that say the size.
  std::string input;                     ///< The samples of the dry runs, in words.
  std::int64_t least = 1;                ///< The smallest micro-batch that the program takes.
  std::vector<Saving> savings;           ///< In order of cost, the first one "none".
  std::vector<std::string> checks = {};  ///< Flags of runs whose real steps are quick enough to compare with.
  /// Returns how a command's step is cut; every choice keeps the samples of the program's defaults.
  std::function<Window(const std::string& command)> window;
  /// Makes dry steps of the program's Trainer. Returns the bytes of all tensors at their peak, or without any
  /// steps those between them, where these are more than `allowed`.
  std::function<std::int64_t(const std::string& command, std::int64_t allowed)> needed;
  /// Returns the program's own flag for a card of so many GB; empty for a program or a card without one.
  std::function<std::string(std::int64_t gigabytes)> preset = [](std::int64_t) { return std::string(); };

  [[nodiscard]] std::string with(const std::string& flags) const {
    return flags.empty() ? command : command + " " + flags;
  }

  /// Returns the windows to try, from the largest micro-batch on, each half of the one before, and the least.
  [[nodiscard]] std::vector<Window> windows() const {
    const Window given = window(command);
    const std::int64_t samples = given.batch * given.accumulate;
    std::vector<Window> windows;
    for (std::int64_t batch = samples;; batch /= 2) {
      if (batch < least) batch = least;
      windows.push_back({batch, samples / batch});
      if (batch == least) return windows;
      if (batch % 2 != 0) batch = 2 * least;  // the least comes next
    }
  }
};

[[nodiscard]] inline std::string flags_of(const Window& window, const Saving& saving) {
  const std::string flags = "--batch-size " + std::to_string(window.batch) + " --gradient-accumulation " +
                            std::to_string(window.accumulate);
  return saving.flags.empty() ? flags : flags + " " + saving.flags;
}

/// Returns the settings of a command line, to which `required` adds what has no part in memory. Throws what
/// the parser throws.
template <class Options, class AddFlags>
[[nodiscard]] Options options_of(const std::string& command, const std::string& required,
                                 AddFlags&& add_flags) {
  std::istringstream text(command + " " + required);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  Options options;
  looptorch::app::CommandLine line(words.front(), "");
  add_flags(line, options);
  (void)line.parse(static_cast<int>(arguments.size()), arguments.data());
  return options;
}

}  // namespace looptorch_bench
