// SPDX-License-Identifier: MIT
// A shared library that adds the simulated accelerator to an unchanged program: named in LD_PRELOAD, it gives
// the program's LibTorch the device "sim". Writes the number of the host's waits, and a sentence for each, to
// the file LOOPTORCH_TEST_WAITS. LOOPTORCH_TEST_MEMORY limits each device's bytes;
// LOOPTORCH_TEST_FAIL_BACKWARD makes an allocation of the first backward fail. The exit code is 99 if
// accesses were out of order.
#include "support/accelerator/accelerator.hpp"

#include <ATen/record_function.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {
namespace {

/// Lets the next allocation fail when autograd begins with the program's first node.
std::unique_ptr<at::ObserverContext> fail_once(const at::RecordFunction&) {
  static std::atomic<bool> began{false};
  if (!began.exchange(true)) configure({.fail_allocation_at = 1});
  return nullptr;
}

/// Lives as long as the program.
class Preloaded {
 public:
  Preloaded() {
    if (const char* bytes = std::getenv("LOOPTORCH_TEST_MEMORY")) configure({.cap_bytes = std::stoul(bytes)});
    if (std::getenv("LOOPTORCH_TEST_FAIL_BACKWARD"))
      at::addGlobalCallback(
          at::RecordFunctionCallback(&fail_once).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  Preloaded(const Preloaded&) = delete;
  Preloaded& operator=(const Preloaded&) = delete;
  ~Preloaded() {
    finish_all();
    if (const char* path = std::getenv("LOOPTORCH_TEST_WAITS")) write_waits(path);
    const std::vector<std::string> found = violations();
    for (const std::string& violation : found) std::fprintf(stderr, "VIOLATION %s\n", violation.c_str());
    if (!found.empty()) std::_Exit(99);
  }

 private:
  void write_waits(const char* path) const {
    std::FILE* file = std::fopen(path, "w");
    if (!file) return;
    std::fprintf(file, "%lld\n", static_cast<long long>(all_.counts().host_waits + idling_event_waits()));
    for (const std::string& wait : all_.waits()) std::fprintf(file, "%s\n", wait.c_str());
    std::fclose(file);
  }

  CountWaits all_;
};

const Preloaded kPreloaded;

}  // namespace
}  // namespace looptorch_test::accelerator
