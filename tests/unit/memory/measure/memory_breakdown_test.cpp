// SPDX-License-Identifier: MIT
// Peaks by phase, and what they consist of.
// Tests memory: held_memory
// Tests memory/measure: memory_phases
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/memory_breakdown.hpp>

namespace lt = looptorch;
using lt::MemoryPhase;

namespace {

lt::MemoryReading reading(std::int64_t allocated, std::int64_t peak) {
  return {.allocated = allocated, .peak = peak, .reserved = 2 * peak, .peak_reserved = 2 * peak};
}

}  // namespace

TEST_CASE("memory phases: a peak belongs to the phase in which it was") {
  lt::MemoryPhases phases;
  phases.begin(reading(100, 500));
  phases.enter(MemoryPhase::forward, reading(110, 120), 0);  // the batch, 10
  phases.enter(MemoryPhase::backward, reading(160, 170), 0);
  phases.enter(MemoryPhase::update, reading(130, 190), 0);
  CHECK(phases.end_window(reading(140, 150), 0) == 190);
  phases.enter(MemoryPhase::evaluation, reading(140, 140), 1);
  phases.enter(MemoryPhase::between, reading(140, 165), 1);

  CHECK(phases.peak_in(MemoryPhase::between) == 140);
  CHECK(phases.peak_in(MemoryPhase::forward) == 170);
  CHECK(phases.peak_in(MemoryPhase::backward) == 190);
  CHECK(phases.peak_in(MemoryPhase::update) == 150);
  CHECK(phases.peak_in(MemoryPhase::evaluation) == 165);
  CHECK(phases.peak().bytes == 190);
  CHECK(phases.peak().phase == MemoryPhase::backward);
  CHECK(phases.peak().held == 100);
  CHECK(phases.peak().entry == 110);
  CHECK(phases.peak().saved == 50);
  CHECK(phases.peak_reserved() == 380);
  CHECK(phases.held() == 140);

  phases.enter(MemoryPhase::forward, reading(145, 145), 1);
  phases.enter(MemoryPhase::backward, reading(250, 300), 1);  // a peak in forward knows what it saved
  CHECK(phases.peak().step == 1);
  CHECK(phases.peak().held == 140);
  CHECK(phases.peak().saved == 105);
  CHECK(phases.end_window(reading(140, 250), 1) == 300);
}

TEST_CASE("memory breakdown: the parts add up to the peak, whatever was measured") {
  const lt::HeldMemory held{.weights = 100, .gradients = 100, .optimizer = 200, .averages = 50};
  const auto backward = lt::divide(
      {.bytes = 800, .phase = MemoryPhase::backward, .held = 370, .entry = 380, .saved = 300}, held);
  CHECK(backward.weights == 100);
  CHECK(backward.optimizer == 200);
  CHECK(backward.averages == 50);
  CHECK(backward.other == 20);
  CHECK(backward.activations == 300);
  CHECK(backward.gradients == 100);
  CHECK(backward.workspace == 30);
  CHECK(backward.total() == 800);

  const auto forward = lt::divide(
      {.bytes = 800, .phase = MemoryPhase::forward, .held = 350, .entry = 390, .saved = 300}, held);
  CHECK(forward.gradients == 40);  // of an earlier micro-batch
  CHECK(forward.activations == 300);
  CHECK(forward.workspace == 110);

  const auto update =
      lt::divide({.bytes = 500, .phase = MemoryPhase::update, .held = 350, .saved = 300}, held);
  CHECK(update.activations == 0);
  CHECK(update.gradients == 100);
  CHECK(update.workspace == 50);

  const auto first =
      lt::divide({.bytes = 250, .phase = MemoryPhase::backward, .held = 100, .saved = 90}, held);
  CHECK(first.total() == 250);  // moments were not there yet: no part is negative
  for (const auto& [name, bytes] : first.parts()) CHECK(bytes >= 0);
}

TEST_CASE("memory breakdown: in words, with the greatest part's remedy first") {
  lt::MemoryBreakdown parts{.weights = 151'000'000, .optimizer = 1'384'647'052, .activations = 999'600'000};
  CHECK(lt::describe(parts) == "weights 151 MB, optimizer 1.38 GB, activations 1 GB");
  const auto list = lt::advice(parts);
  REQUIRE(list.size() == 2);
  CHECK_THAT(list[0], Catch::Matchers::StartsWith("moments: freeze"));
  CHECK_THAT(list[0], Catch::Matchers::Contains("FusedSGD"));
  CHECK_THAT(list[1], Catch::Matchers::Contains("Checkpointed<Layer>"));
  CHECK(lt::advice(parts, {.activations = "--bf16", .optimizer = ""}) ==
        std::vector<std::string>{"activations: --bf16"});
  CHECK(lt::advice({}).empty());
  CHECK(lt::detail::bytes_text(0) == "0 bytes");
  CHECK(lt::detail::bytes_text(999) == "999 bytes");
  CHECK(lt::detail::bytes_text(1000) == "1 KB");
  CHECK(lt::detail::bytes_text(12'345) == "12.3 KB");
  CHECK(lt::detail::bytes_text(-2'000'000) == "-2 MB");
}
