// SPDX-License-Identifier: MIT
// What every test includes; precompiled once, since <torch/torch.h> alone takes 16 s.
#pragma once
#include "support/catch.hpp"

#include <torch/torch.h>
