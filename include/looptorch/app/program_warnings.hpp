// SPDX-License-Identifier: MIT
// Prints looptorch's warnings as lines of a program, "program: warning: sentence", instead of LibTorch's
// "[W1129 12:00:00 file.hpp:212] Warning: ...". LibTorch's own warnings stay as they are.
#pragma once

#include <looptorch/base/process/terminal.hpp>

#include <c10/util/Exception.h>

#include <iostream>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::app {

/// Prints the warnings of the thread that made it, while it lives.
class ProgramWarnings {
 public:
  /// `program` begins each line, as in errors: the program's name, and its rank where there are several.
  explicit ProgramWarnings(std::string program) : handler_(std::move(program)), guard_(&handler_) {}
  ProgramWarnings(const ProgramWarnings&) = delete;
  ProgramWarnings& operator=(const ProgramWarnings&) = delete;

 private:
  class Handler : public c10::WarningHandler {
   public:
    explicit Handler(std::string program) : program_(std::move(program)) {}

    void process(const c10::Warning& warning) override {
      constexpr std::string_view kOurs = "looptorch: ";
      const std::string_view text = warning.msg();
      if (!text.starts_with(kOurs)) return c10::WarningHandler::process(warning);
      const std::string sentence = program_ + ": warning: " + std::string(text.substr(kOurs.size()));
      std::cerr << looptorch::detail::own_line(stderr, sentence) << std::flush;
    }

   private:
    std::string program_;
  };

  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace looptorch::app
