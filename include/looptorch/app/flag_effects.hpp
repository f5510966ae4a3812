// SPDX-License-Identifier: MIT
// Refuses a flag that has no effect with a program's other settings, instead of ignoring it:
//
//   app::require_effect(line, {"mask-bins"}, [&] { return options.masks; }, "without --spec-augment");
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/base/error.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app {

/// Makes `line` throw CommandLineError if one of `flags`, names without hyphens in front, is given and
/// `has_effect` returns false after the parse. The message says that the flag has no effect, and `why`.
inline void require_effect(CommandLine& line, std::vector<std::string> flags,
                           std::function<bool()> has_effect, std::string why) {
  line.on_parsed([flags = std::move(flags), has_effect = std::move(has_effect),
                  why = std::move(why)](const CommandLine& parsed) {
    if (has_effect()) return;
    for (const auto& flag : flags)
      if (parsed.is_given(flag)) throw CommandLineError(message("--", flag, " has no effect ", why));
  });
}

}  // namespace looptorch::app
