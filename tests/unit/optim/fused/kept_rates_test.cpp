// SPDX-License-Identifier: MIT
// Rates that are kept on a device: at one address, and written only when they change.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused/kept_rates.hpp>

namespace lt = looptorch;

TEST_CASE("a kept rate stays at its address, and is written when it changes") {
  lt::detail::KeptRates rates;
  const at::Tensor first = rates.on(at::kCPU, 0, 0.25), other = rates.on(at::kCPU, 1, 0.5);
  CHECK((first.dim() == 0 && first.scalar_type() == at::kDouble));
  CHECK(first.item<double>() == 0.25);
  const auto version = first._version();
  CHECK(rates.on(at::kCPU, 0, 0.25).is_same(first));
  CHECK(first._version() == version);
  CHECK(rates.on(at::kCPU, 0, 0.125).is_same(first));
  CHECK(first.item<double>() == 0.125);
  CHECK(other.item<double>() == 0.5);
}
