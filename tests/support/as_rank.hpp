// SPDX-License-Identifier: MIT
// Lets a test run as one of several ranks, without the others, until the end of a scope.
#pragma once

#include <cstdlib>
#include <string>

namespace looptorch::testing {

/// This process as one of several ranks while it lives.
struct AsRank {
  AsRank(int rank, int size) {
    const auto set = [](const char* name, int value) { ::setenv(name, std::to_string(value).c_str(), 1); };
    set("RANK", rank), set("LOCAL_RANK", rank), set("WORLD_SIZE", size), set("MASTER_PORT", 29500);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  }
  ~AsRank() {
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      ::unsetenv(name);
  }
};

}  // namespace looptorch::testing
