// SPDX-License-Identifier: MIT
// Finds gradients that leak from one update of a Trainer to another.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/loop/context.hpp>

#include <cstddef>

namespace looptorch::testing {

/// A policy that checks before each update that only its own parameters have gradients.
struct NoLeaks {
  void before_update(UpdateContext& update) const {
    for (std::size_t i = 0; i < update.run.updates().size(); ++i)
      for (const auto& parameter : update.run.updates()[i].parameters)
        CHECK(parameter.grad().defined() == (i == update.index()));
  }
};

}  // namespace looptorch::testing
