// SPDX-License-Identifier: MIT
// Defines looptorch's version. CMake and Conan read the version here. vcpkg.json repeats it, and a test
// compares the two.
#pragma once

#define LOOPTORCH_VERSION_MAJOR 0
#define LOOPTORCH_VERSION_MINOR 1
#define LOOPTORCH_VERSION_PATCH 0

/// The version as one number for `#if`: 1.2.3 is 10203.
#define LOOPTORCH_VERSION \
  (LOOPTORCH_VERSION_MAJOR * 10000 + LOOPTORCH_VERSION_MINOR * 100 + LOOPTORCH_VERSION_PATCH)
