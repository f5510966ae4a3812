// SPDX-License-Identifier: MIT
// Makes a program that was loaded once run many times, for tests of programs. Preloaded into a program
// (LD_PRELOAD), it waits just before main. For each request of stand_in.cpp on the socket
// LOOPTORCH_LOADED_ONCE it forks, and the fork runs main; if the stand-in is killed, so is the fork. A fork
// ends without destructors of static objects. The waiting process ends when the socket's file is removed, or
// with the test's process, LOOPTORCH_LOADED_FOR.
#include "../replaced_main.hpp"
#include "request.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <vector>

namespace looptorch::testing {
namespace {

/// Receives a request, and becomes what it asks for: folder, files, environment. Returns the arguments.
std::vector<char*> take_request(int connection) {
  Head head;
  static std::string body;
  if (::recvmsg(connection, &head.message, MSG_WAITALL) != sizeof(head.bytes)) ::_exit(126);
  body.resize(head.bytes);
  if (!transfer_all(&::read, connection, body.data(), body.size())) ::_exit(126);
  std::array<int, kFiles> files{};
  std::memcpy(files.data(), head.files(), sizeof(files));
  for (int to = 0; to < kFiles; ++to) {
    ::dup2(files[static_cast<std::size_t>(to)], to);
    ::close(files[static_cast<std::size_t>(to)]);
  }
  std::vector<char*> texts;
  for (std::size_t at = 0; at < body.size(); at += std::strlen(&body[at]) + 1) texts.push_back(&body[at]);
  if (::chdir(texts[0]) != 0) ::_exit(126);
  const auto end = texts.begin() + 2 + std::atoi(texts[1]);
  ::clearenv();
  for (auto variable = end; variable != texts.end(); ++variable) ::putenv(*variable);
  std::vector<char*> arguments(texts.begin() + 2, end);
  arguments.push_back(nullptr);
  return arguments;
}

/// Waits for a run, passes signals on to it, and answers with its status.
[[noreturn]] void watch(pid_t process, int connection) {
  const int end = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  std::array<pollfd, 2> events{pollfd{end, POLLIN, 0}, pollfd{connection, POLLIN, 0}};
  while (::poll(events.data(), events.size(), -1) >= 0 && events[0].revents == 0) {
    char signal = 0;
    const bool is_there = ::read(connection, &signal, 1) == 1;
    ::kill(process, is_there ? signal : SIGKILL);
    if (!is_there) break;
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  (void)!::write(connection, &status, sizeof(status));
  ::_exit(0);
}

/// Returns a connection to a stand-in, in a process of its own.
int await_connection(const std::string& path) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = address_of(path);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) ::_exit(0);
  ::listen(listener, 64);
  const char* const test = std::getenv("LOOPTORCH_LOADED_FOR");
  ::signal(SIGCHLD, SIG_IGN);
  for (pollfd event{listener, POLLIN, 0};;) {
    constexpr int kMilliseconds = 500;
    const int ready = ::poll(&event, 1, kMilliseconds);
    if (::access(path.c_str(), F_OK) != 0 || (test && ::kill(std::atoi(test), 0) != 0)) ::_exit(0);
    if (ready != 1) continue;
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (::fork() == 0) {
      ::close(listener);
      ::signal(SIGCHLD, SIG_DFL);
      return connection;
    }
    ::close(connection);
  }
}

/// In place of main. Refuses if the program has several threads, of which a fork would have but one.
int serve(int, char**, char**) {
  const auto threads = std::filesystem::directory_iterator("/proc/self/task");
  if (std::distance(begin(threads), end(threads)) != 1) ::_exit(125);
  const int connection = await_connection(std::getenv("LOOPTORCH_LOADED_ONCE"));
  static auto arguments = take_request(connection);
  if (const pid_t process = ::fork(); process != 0) {
    for (int file = 0; file < kFiles; ++file) ::close(file);
    watch(process, connection);
  }
  ::close(connection);
  const int code = program(static_cast<int>(arguments.size()) - 1, arguments.data(), environ);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);  // LibTorch takes 0.2 s to unregister its kernels
}

Main replaced_main() { return std::getenv("LOOPTORCH_LOADED_ONCE") ? &serve : program; }

}  // namespace
}  // namespace looptorch::testing
