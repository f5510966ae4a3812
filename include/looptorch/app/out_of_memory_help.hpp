// SPDX-License-Identifier: MIT
// What a program's user can do when memory runs out, by the flags that the program has.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flag_values.hpp>
#include <looptorch/base/error.hpp>

#include <cstdint>
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

/// Returns the flag that limits a micro-batch and can be lowered; empty for none. It is --batch-size where
/// that is a limit, since a resumed run can divide it; `least` is its smallest value. A --batch-size of 0 is
/// a limit that other settings say, but none beside --batch-frames.
[[nodiscard]] inline std::string batch_to_lower(const CommandLine& line,
                                                const std::map<std::string, std::string>& values,
                                                std::int64_t least) {
  const auto number = [&](const std::string& name) -> std::int64_t {
    const auto found = values.find(name);
    return found == values.end() ? 0 : parse_number<std::int64_t>(found->second);
  };
  const bool by_frames = number("batch-frames") != 0;
  const std::int64_t samples = number("batch-size");
  if (samples != 0) return samples > least ? "batch-size" : "";
  if (line.has("batch-size") && !by_frames) return "batch-size";
  return by_frames ? "batch-frames" : "";
}

}  // namespace detail

/// Returns sentences that name the flags of `line` by which a run takes less memory, as far as they are not
/// given yet, those that find out which, and the one that resumes a run; with a link to the page that
/// explains them. `least_batch` is the smallest --batch-size that the program takes.
[[nodiscard]] inline std::string out_of_memory_help(const CommandLine& line, std::int64_t least_batch = 1) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : line.settings()) values[name] = value;
  const auto is_one_of = [&](const std::string& name, std::initializer_list<std::string_view> settings) {
    for (const std::string_view setting : settings)
      if (values[name] == setting) return true;
    return false;
  };
  std::vector<std::string> ways;
  const std::string batch = detail::batch_to_lower(line, values, least_batch);
  if (!batch.empty())
    ways.push_back("a smaller --" + batch +
                   (line.has("gradient-accumulation") ? " with a larger --gradient-accumulation" : ""));
  if (line.has("gradient-checkpointing") && is_one_of("gradient-checkpointing", {"no", "none"}))
    ways.push_back("--gradient-checkpointing");
  if (line.has("bf16") && is_one_of("precision", {"fp32"}))
    ways.push_back(line.is_given("fp32") ? "--bf16 instead of --fp32" : "--bf16");
  if (line.has("fit") && is_one_of("fit", {""})) ways.push_back("--fit SIZE, which chooses flags that fit");
  std::string text = "Memory ran out";
  if (!ways.empty()) text += ": give " + detail::alternatives(ways);
  if (line.has("preflight") && !is_one_of("preflight", {"yes"}))
    text += "; --preflight tries before a run what fits";
  if (line.has("resume")) text += "; --resume auto goes on from the last snapshot";
  if (line.has("resume") && batch == "batch-frames") text += " if --batch-frames stays as it is";
  return text + ". See docs/errors.md#out-of-memory";
}

}  // namespace looptorch::app
