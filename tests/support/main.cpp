// SPDX-License-Identifier: MIT
// The main function of test programs with Catch2 2, whose header defines it here. Catch2 3 has it in a
// library instead.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#endif
#include "support/catch.hpp"
