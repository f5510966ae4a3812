// SPDX-License-Identifier: MIT
// What every test includes; precompiled once, since <torch/torch.h> alone takes 16 s.
#pragma once
#include <torch/torch.h>

#include "support/catch.hpp"
