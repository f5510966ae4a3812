// SPDX-License-Identifier: MIT
// What a program's user can do when memory runs out, by the flags that the program has.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/base/error.hpp>

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::app {

namespace detail {

/// Returns "a", "a or b", "a, b or c".
[[nodiscard]] inline std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  return text;
}

}  // namespace detail

/// Returns sentences that name the flags of `line` by which a run takes less memory, as far as they are not
/// given yet, those that find out which, and the one that resumes a run; with a link to the page that
/// explains them.
[[nodiscard]] inline std::string out_of_memory_help(const CommandLine& line) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : line.settings()) values[name] = value;
  const auto is_one_of = [&](const std::string& name, std::initializer_list<std::string_view> settings) {
    for (const std::string_view setting : settings)
      if (values[name] == setting) return true;
    return false;
  };
  std::vector<std::string> ways;
  for (const std::string name : {"batch-frames", "batch-size"}) {
    if (!line.has(name) || is_one_of(name, {"0", "1"})) continue;
    ways.push_back("a smaller --" + name +
                   (line.has("gradient-accumulation") ? " with a larger --gradient-accumulation" : ""));
    break;
  }
  if (line.has("gradient-checkpointing") && is_one_of("gradient-checkpointing", {"no", "none"}))
    ways.push_back("--gradient-checkpointing");
  if (line.has("bf16") && is_one_of("precision", {"fp32"})) ways.push_back("--bf16");
  if (line.has("fit") && is_one_of("fit", {""})) ways.push_back("--fit SIZE, which chooses flags that fit");
  std::string text = "Memory ran out";
  if (!ways.empty()) text += ": give " + detail::alternatives(ways);
  if (line.has("preflight")) text += "; --preflight tries before a run what fits";
  if (line.has("resume")) text += "; --resume auto goes on from the last snapshot";
  return text + ". See docs/errors.md#out-of-memory";
}

}  // namespace looptorch::app
