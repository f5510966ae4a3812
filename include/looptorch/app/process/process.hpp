// SPDX-License-Identifier: MIT
// Runs another program without a shell. A failure is an exception that quotes the program's stderr.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace looptorch::app {

/// Thrown for a program that is not installed, cannot be started, or failed. Quotes its stderr's first line.
struct ProcessError : Error {
  using Error::Error;
};

namespace detail {

/// Both ends of a pipe; closed on destruction, and not inherited by children unless passed to them.
struct Pipe {
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw ProcessError(std::string("pipe: ") + std::strerror(errno));
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (int end : ends) {
      if (end >= 0) ::close(end);
    }
  }

  void close_write_end() {
    ::close(ends[1]);
    ends[1] = -1;
  }

  /// Returns everything that is written until the last writer closes its end.
  [[nodiscard]] std::string read_all() const {
    std::string text;
    std::array<char, 4096> block;
    for (ssize_t got = 0; (got = ::read(ends[0], block.data(), block.size())) != 0;) {
      if (got > 0) text.append(block.data(), static_cast<size_t>(got));
      if (got < 0 && errno != EINTR) break;
    }
    return text;
  }

  std::array<int, 2> ends{-1, -1};
};

/// Starts the program with its input and output on /dev/null and its errors in `errors`.
inline pid_t spawn(std::vector<std::string> command, const Pipe& errors) {
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO);
  pid_t child = 0;
  const int code = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == ENOENT && command[0].find('/') == std::string::npos)
    throw ProcessError(command[0] + " is not installed (Debian: apt-get install " + command[0] + ")");
  if (code != 0) throw ProcessError(command[0] + ": cannot be started: " + std::strerror(code));
  return child;
}

}  // namespace detail

/// Runs `command` (program and arguments) to its end; throws ProcessError unless it exits with 0.
inline void run_process(const std::vector<std::string>& command) {
  detail::Pipe errors;
  const pid_t child = detail::spawn(command, errors);
  errors.close_write_end();
  const auto said = errors.read_all();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const auto how = WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                     : "signal " + std::to_string(WTERMSIG(status));
  throw ProcessError(command[0] + " failed with " + how + ": " + looptorch::detail::first_line(said));
}

}  // namespace looptorch::app
