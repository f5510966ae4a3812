// SPDX-License-Identifier: MIT
// The includes of every test. They are precompiled once, since <torch/torch.h> alone takes 16 s.
#pragma once

// LibTorch first: its logging defines a CHECK of its own, which Catch2's then replaces.
// clang-format off
#include <torch/torch.h>

#include "support/libtorch_virtuals.hpp"

#include "support/catch.hpp"
// clang-format on
