// SPDX-License-Identifier: MIT
// Every policy, one line each.
#pragma once

#include "looptorch/policies/accumulate.hpp"
