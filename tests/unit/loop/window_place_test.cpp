// SPDX-License-Identifier: MIT
// A window's place as a text.
#include "support/precompiled.hpp"

#include <looptorch/loop/window_place.hpp>

#include <numeric>

using looptorch::WindowPlace;

TEST_CASE("WindowPlace: says what is known of a window, and at most 16 of its samples") {
  CHECK(WindowPlace{.step = 3}.text() == "step 3");
  CHECK(WindowPlace{.step = 3, .epoch = 1, .first_batch = 5, .last_batch = 5}.text() ==
        "step 3, batch 5 of epoch 1");
  WindowPlace place{.step = 3, .first_batch = 5, .last_batch = 6, .samples = {10, 11}};
  CHECK(place.text() == "step 3, batch 5 to 6 of epoch 0 (samples 10, 11)");
  place.samples.resize(17);
  std::iota(place.samples.begin(), place.samples.end(), 0);
  CHECK(place.text().find("14, 15, ...)") != std::string::npos);
}
