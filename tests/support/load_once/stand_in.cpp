// SPDX-License-Identifier: MIT
// Stands in for a program in tests that run it a hundred times, since loading LibTorch takes half a second of
// processor time. The first run starts a process that loads the program (preloaded.cpp); each run is a fork
// of it. Needs a link NAME to this program, beside the links NAME.program and preloaded.so. Passes signals
// on, and returns the program's exit code. If no such process can be had, becomes the program itself.
#include "request.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace looptorch::testing {
namespace {

int connection = -1;

/// Starts the process that loads the program.
pid_t start(const std::string& name) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int file = 0; file < kFiles; ++file) ::dup2(nothing, file);
  ::close_range(kFiles, ~0U, 0);
  std::string preloaded = std::filesystem::path(name).parent_path() / "preloaded.so";
  if (const char* others = std::getenv("LD_PRELOAD")) preloaded += std::string(":") + others;
  ::setenv("LD_PRELOAD", preloaded.c_str(), 1);
  ::setenv("LOOPTORCH_LOADED_ONCE", (name + ".socket").c_str(), 1);
  const std::string program = name + ".program";
  ::execl(program.c_str(), program.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

/// Connects to the process, which it starts where there is none. Returns false where that one cannot serve.
bool connect_to(const std::string& name) {
  const auto address = address_of(name + ".socket");
  if (address.sun_family != AF_UNIX) return false;
  pid_t process = 0;
  for (int tries = 0; tries < 20'000; ++tries, ::poll(nullptr, 0, 5)) {
    connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return true;
    ::close(connection);
    if (process == 0) process = start(name);
    int status = 0;  // 0 where another process was faster
    if (process < 0 || (::waitpid(process, &status, WNOHANG) == process && status != 0)) return false;
  }
  return false;
}

bool send_request(int argc, char** argv) {
  std::string body = std::filesystem::current_path().string() + '\0' + std::to_string(argc) + '\0';
  for (int i = 0; i < argc; ++i) body += std::string(argv[i]) + '\0';
  for (char** variable = environ; *variable; ++variable) body += std::string(*variable) + '\0';
  Head head;
  head.bytes = body.size();
  auto& files = *CMSG_FIRSTHDR(&head.message);
  files.cmsg_level = SOL_SOCKET, files.cmsg_type = SCM_RIGHTS,
  files.cmsg_len = CMSG_LEN(kFiles * sizeof(int));
  const std::array<int, kFiles> numbers{0, 1, 2};
  std::memcpy(head.files(), numbers.data(), sizeof(numbers));
  return ::sendmsg(connection, &head.message, MSG_NOSIGNAL) == sizeof(head.bytes) &&
         transfer_all(&::write, connection, body.data(), body.size());
}

void pass_on(int signal) {
  const auto byte = static_cast<char>(signal);
  (void)!::write(connection, &byte, 1);
}

}  // namespace
}  // namespace looptorch::testing

int main(int argc, char** argv) {
  using namespace looptorch::testing;
  const std::string name = argv[0];
  if (!connect_to(name) || !send_request(argc, argv)) {
    ::execv((name + ".program").c_str(), argv);
    return 127;
  }
  struct sigaction action {};
  action.sa_handler = &pass_on;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaction(signal, &action, nullptr);
  int status = 0;
  if (!transfer_all(&::read, connection, reinterpret_cast<char*>(&status), sizeof(status))) return 126;
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return 126;
}
