// SPDX-License-Identifier: MIT
// Makes the unit tests in a program of device tests use the device under test, by setting `place()`. Ends the
// program as skipped if there is no such device.
#include "support/place.hpp"

#include "support/device.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

const bool is_placed = [] {
  using namespace looptorch::testing;
  if (!is_simulated() && !at::hasCUDA()) {
    std::puts("skipped: no CUDA device");
    std::fflush(stdout);
    std::_Exit(EXIT_SUCCESS);
  }
  place() = test_device();
  return true;
}();

}  // namespace
