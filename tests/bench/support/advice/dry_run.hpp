// SPDX-License-Identifier: MIT
// Measures the memory peak of a program's Trainer by dry steps.
#pragma once

#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include <cstdint>
#include <vector>

namespace looptorch_bench {

namespace lt = looptorch;

/// Returns the bytes of all tensors at the peak of dry steps on the batch that `make` returns, or those that
/// are held between steps if they are more than `allowed`.
template <class Trainer, class Make>
[[nodiscard]] std::int64_t peak_of(Trainer& trainer, const Make& make, std::int64_t allowed) {
  constexpr std::int64_t kNoCap = 1'000'000'000'000;
  const auto held = trainer.expected_memory();
  const auto least = held.weights + held.gradients + held.optimizer + held.averages;
  if (least > allowed) return least;
  const auto hardest = [&] {
    const lt::HostMemory::PlaceScope on_host(lt::HostMemory::Place::host);
    return std::vector{make()};
  }();
  return lt::preflight(trainer, hardest, {.cap = kNoCap, .try_remedies = false}).phases.peak().bytes;
}

/// Returns a program's policy of mixed precision.
template <class Training>
[[nodiscard]] auto precision_of(const Training& training) {
  return lt::When{training.mixed_precision(), lt::Autocast<>{.type = training.autocast_type()}};
}

}  // namespace looptorch_bench
