// SPDX-License-Identifier: MIT
// The faulty disk for a program as it is: built into a shared library with disk_shim.cpp and named in
// LD_PRELOAD. Counts the calls about paths that hold LOOPTORCH_FAULT_OF; the one with the number
// LOOPTORCH_FAULT_AT is SIGKILL instead, and a program that ends by itself writes how many there were into
// the file LOOPTORCH_FAULT_CALLS.
#include "disk_shim.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace looptorch::testing {
namespace {

std::string setting(const char* variable, const char* otherwise) {
  const char* text = std::getenv(variable);
  return text ? text : otherwise;
}

/// Lives as long as the program.
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

const Preloaded kPreloaded;

}  // namespace
}  // namespace looptorch::testing
