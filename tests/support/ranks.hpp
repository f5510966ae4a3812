// SPDX-License-Identifier: MIT
// Runs a hidden test case of this executable in several processes at once, as torchrun would start them. A
// case tagged [.ranks] is one rank; the case that calls `run_ranks` is what ctest sees.
#pragma once

#include "support/temporary_folder.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ranks {

/// How one process ended, and what it wrote to stdout and stderr.
struct Outcome {
  int status = -1;  // as waitpid gives it
  double seconds = 0.0;
  std::string output;
  [[nodiscard]] bool passed() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

/// Returns what starts this executable once more. In ctest that is a link to load_once/stand_in.cpp: the
/// executable is loaded once, and each rank is a fork of it. LOOPTORCH_LOAD_ONCE is the folder of its parts.
inline const std::string& executable() {
  namespace fs = std::filesystem;
  static const looptorch::testing::TemporaryFolder folder;
  static const std::string program = [] {
    const char* const parts = std::getenv("LOOPTORCH_LOAD_ONCE");
    if (!parts) return std::string("/proc/self/exe");
    fs::create_symlink(fs::path(parts) / "looptorch_stand_in", folder / "rank");
    fs::create_symlink(fs::path(parts) / "liblooptorch_load_once.so", folder / "preloaded.so");
    fs::create_symlink(fs::read_symlink("/proc/self/exe"), folder / "rank.program");
    ::setenv("LOOPTORCH_LOADED_FOR", std::to_string(::getpid()).c_str(), /*overwrite=*/1);
    return (folder / "rank").string();
  }();
  return program;
}

/// Environment variables of each rank beside the launcher's.
using Variables = std::map<std::string, std::string>;

/// Starts one process a rank; `name` is a hidden test case. Kills what is left after `limit`, and rank
/// `stopped` once all others have ended.
inline std::vector<Outcome> run_ranks(int count, const std::string& name, const std::filesystem::path& folder,
                                      const Variables& more = {},
                                      std::chrono::seconds limit = std::chrono::seconds(240),
                                      int stopped = -1) {
  using Clock = std::chrono::steady_clock;
  const std::string port = std::to_string(free_port());
  std::string program = executable();
  std::vector<pid_t> processes;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
  const auto output_of = [&](int rank) { return folder / ("rank" + std::to_string(rank) + ".txt"); };
  for (int rank = 0; rank < count; ++rank) {
    Variables variables = more;
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = std::to_string(count);
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = port;
    variables["OMP_NUM_THREADS"] = "1";
    variables["RANKS_FOLDER"] = folder.string();
    std::vector<std::string> texts;
    for (char** each = environ; *each; ++each)
      if (const std::string text = *each; variables.count(text.substr(0, text.find('='))) == 0)
        texts.push_back(text);
    for (const auto& [key, value] : variables) texts.push_back(key + '=' + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    std::string filter = name;
    char* arguments[] = {program.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, output_of(rank).c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0644);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t process = -1;
    ::posix_spawn(&process, program.c_str(), &actions, nullptr, arguments, environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    processes.push_back(process);
  }
  const auto start = Clock::now();
  for (std::size_t left = processes.size(); left > 0;) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      if (processes[i] < 0) continue;
      if (::waitpid(processes[i], &outcomes[i].status, WNOHANG) != processes[i]) {
        const bool is_left = left == 1 && static_cast<int>(i) == stopped;
        if (Clock::now() - start > limit || is_left) ::kill(processes[i], SIGKILL);
        continue;
      }
      outcomes[i].seconds = std::chrono::duration<double>(Clock::now() - start).count();
      processes[i] = -1;
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (int rank = 0; rank < count; ++rank) {
    std::ifstream file(output_of(rank));
    std::stringstream text;
    text << file.rdbuf();
    outcomes[static_cast<std::size_t>(rank)].output = text.str();
  }
  return outcomes;
}

/// False where a hidden case runs among all of its file, as ctest runs them: it does nothing then.
inline bool is_started() { return std::getenv("RANKS_FOLDER") != nullptr; }
/// In a hidden case: this process's rank, the number of ranks, and the folder that they share.
inline int rank() { return std::atoi(std::getenv("RANK")); }
inline int size() { return std::atoi(std::getenv("WORLD_SIZE")); }
inline std::filesystem::path folder() { return std::getenv("RANKS_FOLDER"); }

}  // namespace ranks
