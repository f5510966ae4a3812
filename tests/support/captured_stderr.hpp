// SPDX-License-Identifier: MIT
// Captures the output to stderr until the end of a scope.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace looptorch::testing {

class CapturedStderr {
 public:
  CapturedStderr() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    std::fflush(stderr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;
  ~CapturedStderr() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(file_);
  }

  [[nodiscard]] std::string text() const {
    std::fflush(stderr);
    std::string text(static_cast<std::size_t>(::lseek(::fileno(file_), 0, SEEK_END)), ' ');
    text.resize(static_cast<std::size_t>(::pread(::fileno(file_), text.data(), text.size(), 0)));
    return text;
  }

 private:
  std::FILE* const file_;
  const int before_;
};

}  // namespace looptorch::testing
