// SPDX-License-Identifier: MIT
// Reads a size of memory, such as "4GB", from the command line: the value of `whisper_finetune --fit`.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace whisper {

/// Returns the bytes that "4GB", "1.8 gb" or "900M" names; without a unit they are GB. A GB is 10^9 bytes.
/// Throws CommandLineError.
[[nodiscard]] inline std::int64_t parse_bytes(const std::string& text) {
  double unit = 1e9;
  std::string number;
  for (const char sign : text) number += static_cast<char>(std::toupper(static_cast<unsigned char>(sign)));
  for (const auto& [name, bytes] :
       {std::pair<std::string_view, double>{"GB", 1e9}, {"MB", 1e6}, {"G", 1e9}, {"M", 1e6}}) {
    if (!number.ends_with(name)) continue;
    number.resize(number.size() - name.size()), unit = bytes;
    while (number.ends_with(' ')) number.pop_back();
    break;
  }
  try {
    return std::llround(unit * looptorch::app::parse_number<double>(number, {.max = 1e6, .above = 0}));
  } catch (const looptorch::app::CommandLineError&) {
    throw looptorch::app::CommandLineError("--fit: \"" + text + "\" is no size, such as 4GB or 900MB");
  }
}

}  // namespace whisper
