// SPDX-License-Identifier: MIT
// Holds the precompiled header; see tests/CMakeLists.txt.
