// SPDX-License-Identifier: MIT
// With other_unit.cpp: a function or variable that a header defines without `inline` would be defined twice.
#include "everything.hpp"

const char* message_from_other_unit();

int main() { return looptorch::Error(message_from_other_unit()).what()[0] == 'o' ? 0 : 1; }
