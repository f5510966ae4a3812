// SPDX-License-Identifier: MIT
// Unit tests in a program of device tests make their tensors on the device under test. They do not ask
// whether there is one, so that without it the program ends here.
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
