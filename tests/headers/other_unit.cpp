// SPDX-License-Identifier: MIT
#include "everything.hpp"

const char* message_from_other_unit() { return "other unit"; }
