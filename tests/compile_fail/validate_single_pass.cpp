// SPDX-License-Identifier: MIT
// expect: looptorch: Validate needs batches that can be gone through again
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#include <sstream>
std::istringstream words;
std::vector<int> numbers;

#ifdef LOOPTORCH_TWIN
lt::Validate validate{numbers};
#else
lt::Validate validate{std::ranges::istream_view<int>(words)};
#endif
