// SPDX-License-Identifier: MIT
// Generators that are put back draw the same numbers again, of all kinds.
// Tests base/device: saved_generator
#include "support/precompiled.hpp"

#include <looptorch/base/device/saved_generator.hpp>

#include <cstdint>
#include <vector>

namespace {

std::vector<at::Tensor> draws() {
  return {torch::rand({700}), torch::randn({3}),         torch::randn({3}, torch::kDouble),
          torch::randperm(9), at::normal(0.0, 1.0, {1}), torch::bernoulli(torch::full({40}, 0.5))};
}

}  // namespace

TEST_CASE("generators that are put back draw the same again, wherever they stood") {
  looptorch::detail::SavedGenerators kept;
  torch::manual_seed(3);
  for (std::int64_t before = 0; before < 40; ++before) {
    (void)torch::normal(0.0, 1.0, {before % 7});  // of normal numbers one may be left over
    if (before % 3 == 0) (void)torch::rand({before * 37});
    kept.capture();
    const auto first = draws();
    kept.restore();
    const auto again = draws();
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(first[i].equal(again[i]));
    kept.restore();
    kept.capture();
    kept.restore();
    CHECK(torch::rand({700}).equal(first[0]));
  }
}
