// SPDX-License-Identifier: MIT
// For tests that need a GPU: begin with `if (!has_cuda()) return;`. ctest recognises the message and reports
// the test as skipped.
#pragma once

#include "support/catch.hpp"

#include <ATen/Context.h>

[[nodiscard]] inline bool has_cuda() {
  if (at::hasCUDA()) return true;
  WARN("skipped: no CUDA device");
  return false;
}
