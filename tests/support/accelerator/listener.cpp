// SPDX-License-Identifier: MIT
// A listener of Catch2 that fails a test program whose cases leave violations on the simulated accelerator.
// Compile it into the program, without a precompiled header. A case that provokes violations on purpose takes
// them (`take_violations`).
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // Catch2 2 has listeners only then

#include "support/accelerator/accelerator.hpp"
// LibTorch first: its logging defines a CHECK of its own, which Catch2's then replaces.
#include "support/catch.hpp"

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace looptorch_test::accelerator {

namespace {

#if __has_include(<catch2/catch_all.hpp>)
using CatchListener = Catch::EventListenerBase;
#else
using CatchListener = Catch::TestEventListenerBase;
#endif

class ViolationListener : public CatchListener {
 public:
  using CatchListener::CatchListener;

  /// A backward's kernels run in a thread of the engine, which keeps the number of threads that was set when
  /// it began; with more of them sums are rounded otherwise than the main thread's.
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    at::set_num_threads(1);
    name_ = info.name;
    (void)take_violations();
  }
  void testCaseEnded(const Catch::TestCaseStats&) override {
    finish_all();
    for (const std::string& sentence : take_violations()) {
      std::fprintf(stderr, "violation in \"%s\": %s\n", name_.c_str(), sentence.c_str());
      fail_at_exit();
    }
  }

 private:
  static void fail_at_exit() {
    static const int once = std::atexit([] {
      std::fflush(nullptr);
      std::_Exit(EXIT_FAILURE);
    });
    (void)once;
  }

  std::string name_;
};

CATCH_REGISTER_LISTENER(ViolationListener)

}  // namespace

}  // namespace looptorch_test::accelerator
