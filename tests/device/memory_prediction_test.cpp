// SPDX-License-Identifier: MIT
// Simulated device only, whose attention is by products and a softmax. What preflight and ShapesOnly predict
// of a device's memory, beside what a fit takes there: some of the runs of tests/bench/run.sh
// memory_prediction -- sim, which has all.
#include "support/precompiled.hpp"

#include "bench/support/memory_runs.hpp"
#include "bench/support/predicted_memory.hpp"
#include "support/device.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

using namespace looptorch_bench;
using looptorch::testing::has_device;
using looptorch::testing::test_device;

namespace {

/// Compares a run.
template <class Make>
void check(const std::string& name, const Make& make) {
  INFO(name);
  const auto memory = fp16_scale(make, test_device(), [](std::int64_t bytes) {
    return looptorch_test::accelerator::With({.cap_bytes = static_cast<std::size_t>(bytes)});
  });
  CHECK_FALSE(memory.ran_out);
  CHECK(memory.by_steps.tensors == memory.measured.tensors);
  CHECK(memory.by_steps.reserved == memory.measured.reserved);
  CHECK(memory.by_shapes.tensors == memory.measured.tensors);
  CHECK(memory.by_shapes.reserved == memory.measured.reserved);
}

}  // namespace

TEST_CASE("The memory of a plain network on a device is predicted, by dry steps and by shapes") {
  if (!has_device()) return;
  torch::manual_seed(1);
  plain_runs<lt::FusedAdam>("Adam", lt::FusedAdamOptions{},
                            [](const std::string& name, const auto& make) { check(name, make); });
}

TEST_CASE("The memory of Whisper on a device is predicted, by dry steps and by shapes") {
  if (!has_device()) return;
  torch::manual_seed(1);
  whisper_runs([](const std::string& name, const auto& make) {
    if (name == "whisper, 1 clips, recomputed: none" || name == "whisper, 1 clips, recomputed: all, bf16")
      check(name, make);
  });
}

TEST_CASE("The memory of KonkaniVani on a device is predicted, by dry steps and by shapes") {
  if (!has_device()) return;
  torch::manual_seed(1);
  konkanivani_runs([](const std::string& name, const auto& make) {
    if (name == "konkanivani, 2 clips" || name == "konkanivani, 2 clips, bf16" ||
        name == "konkanivani, 2 clips, recomputed" || name == "konkanivani, 6 clips, recomputed, bf16")
      check(name, make);
  });
}
