// SPDX-License-Identifier: MIT
// The faulty disk for a program as it is: built into a shared library with disk_shim.cpp and named in
// LD_PRELOAD. Counts the calls about paths that hold LOOPTORCH_FAULT_OF; the one with the number
// LOOPTORCH_FAULT_AT is SIGKILL instead, and a program that ends by itself writes how many there were into
// the file LOOPTORCH_FAULT_CALLS.
//
// With LOOPTORCH_FORKS the program is loaded once and waits just before its main. For each line on its
// standard input, "OUTPUT<tab>VARIABLE=VALUE<tab>...", a fork of it runs main: with these variables, with
// OUTPUT for {} in its arguments, and with its standard error in OUTPUT.log. The number of the process and,
// when it has ended, its exit code (128 + the number of a signal) are written to the standard output. Loading
// LibTorch takes half a second of processor time, about as long as the tests' programs train.
#include "../support/replaced_main.hpp"
#include "disk_shim.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace looptorch::testing {
namespace {

std::string setting(const char* variable, const char* otherwise) {
  const char* text = std::getenv(variable);
  return text ? text : otherwise;
}

/// Counts while it lives.
class Preloaded {
 public:
  Preloaded() : calls_(setting("LOOPTORCH_FAULT_CALLS", "")) {
    const std::string of = setting("LOOPTORCH_FAULT_OF", "");
    if (of.empty()) return;
    disk_ = std::make_unique<FaultyDisk>(DiskFault{
        .kind = DiskFault::kill, .at = std::atoi(setting("LOOPTORCH_FAULT_AT", "-1").c_str()), .of = of});
  }
  Preloaded(const Preloaded&) = delete;
  Preloaded& operator=(const Preloaded&) = delete;
  ~Preloaded() {
    if (!disk_ || calls_.empty()) return;
    const std::size_t count = disk_->calls().size();
    disk_.reset();
    if (std::FILE* file = std::fopen(calls_.c_str(), "w"))
      std::fprintf(file, "%zu\n", count), std::fclose(file);
  }

 private:
  std::string calls_;
  std::unique_ptr<FaultyDisk> disk_;
};

const bool kForks = !setting("LOOPTORCH_FORKS", "").empty();

/// Arms the fault, until the process ends. Made here, it dies before what it has used when it was made.
void arm() { static const Preloaded preloaded; }

/// Ends a fork without destructors of static objects: LibTorch takes 0.2 s to unregister its kernels.
[[noreturn]] void end(int code) {
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

/// One request to run the program.
struct Request {
  std::string output;
  std::vector<std::string> variables;
};

Request parse(const std::string& line) {
  std::istringstream fields(line);
  Request request;
  std::getline(fields, request.output, '\t');
  for (std::string field; std::getline(fields, field, '\t');) request.variables.push_back(field);
  return request;
}

void redirect(const std::string& path, int flags, int to) {
  const int file = ::open(path.c_str(), flags, 0644);
  if (file < 0 || ::dup2(file, to) < 0) ::_exit(126);
  ::close(file);
}

/// Runs the program's main in this process, a fork.
int run(const Request& request, int argc, char** argv) {
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect("/dev/null", O_WRONLY, STDOUT_FILENO);
  redirect(request.output + ".log", O_WRONLY | O_CREAT | O_APPEND, STDERR_FILENO);
  for (const std::string& variable : request.variables) {
    const std::size_t at = variable.find('=');
    ::setenv(variable.substr(0, at).c_str(), variable.substr(at + 1).c_str(), 1);
  }
  static std::vector<std::string> texts(argv, argv + argc);
  static std::vector<char*> arguments;
  for (std::string& text : texts) {
    for (std::size_t at; (at = text.find("{}")) != std::string::npos;) text.replace(at, 2, request.output);
    arguments.push_back(text.data());
  }
  arguments.push_back(nullptr);
  const Preloaded preloaded;
  return program(argc, arguments.data(), environ);
}

/// Throws away the process if it has several threads, of which a fork would have but one.
void require_one_thread() {
  const auto threads = std::filesystem::directory_iterator("/proc/self/task");
  if (std::distance(begin(threads), end(threads)) == 1) return;
  std::fprintf(stderr, "LOOPTORCH_FORKS: the program has begun threads before main\n");
  ::_exit(125);
}

int serve(int argc, char** argv, char**) {
  require_one_thread();
  for (std::string line; std::getline(std::cin, line);) {
    const pid_t process = ::fork();
    if (process == 0) end(run(parse(line), argc, argv));
    std::cout << process << std::endl;
    int status = 0;
    if (process < 0 || ::waitpid(process, &status, 0) != process) ::_exit(124);
    std::cout << (WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)) << std::endl;
  }
  ::_exit(0);
}

struct AtLoad {
  AtLoad() {
    if (!kForks) arm();
  }
};
const AtLoad kAtLoad;

Main replaced_main() { return kForks ? &serve : program; }

}  // namespace
}  // namespace looptorch::testing
