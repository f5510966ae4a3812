// SPDX-License-Identifier: MIT
// Models, Trainers and threads beyond one device: a model on two of them, a Trainer on one that is not
// current, and two Trainers in two threads have the CPU's bits.
#include "support/precompiled.hpp"

#include "device/support/training.hpp"
#include "support/device.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <string>
#include <thread>

using namespace looptorch::testing;
using training::Optimizer, training::Settings, training::Source;
using Mode = looptorch::CheckpointMode;

namespace {

Settings everything(Mode mode) {
  Settings settings = training::many_policies(mode);
  settings.resume = true;
  return settings;
}

/// Returns how many blocks of memory a device's tensors have taken so far.
std::int64_t allocations(at::Device device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return allocator->getDeviceStats(device.index()).allocation[0].allocated;
}

void check_bits(const training::Outcome& there, const Settings& settings) {
  const auto on_cpu = training::train(settings, at::kCPU);
  CHECK(there.result.steps == on_cpu.result.steps);
  if (is_simulated()) CHECK(training::difference(on_cpu, there) == "");
}

}  // namespace

TEST_CASE("a model on two devices has the CPU's bits, under every policy that touches its tensors") {
  if (!has_device(1)) return;
  for (const Settings& settings :
       {Settings{}, Settings{.clip_norm = true}, Settings{.averages = true}, Settings{.fp16 = true},
        Settings{.bf16 = true}, Settings{.source = Source::pageable, .clip_value = true, .schedule = true},
        Settings{.optimizer = Optimizer::sgd, .accumulate = 2, .fp16 = true, .clip_norm = true},
        Settings{.optimizer = Optimizer::two_updates, .accumulate = 2, .fp16 = true, .clip_norm = true},
        Settings{.weights = training::Weights::sparse_on_device, .accumulate = 3},
        everything(Mode::recompute), everything(Mode::offload)}) {
    Settings split = settings;
    split.second = test_device(1);
    CAPTURE(settings.fp16, settings.clip_norm, settings.averages, settings.accumulate);
    check_bits(training::train(split, test_device(0)), settings);
  }
}

TEST_CASE("a run on a device that is not current leaves the current one alone") {
  if (!has_device(1)) return;
  const at::Tensor current = torch::ones({1}, test_device(0));
  for (const Mode mode : {Mode::off, Mode::recompute, Mode::offload}) {
    const auto before = allocations(test_device(0));
    check_bits(training::train(everything(mode), test_device(1)), everything(mode));
    CHECK(allocations(test_device(0)) == before);
  }
}

TEST_CASE("two Trainers on two devices in two threads do not disturb each other") {
  if (!has_device(1)) return;
  const Settings settings = everything(Mode::offload);
  training::Outcome first, second;
  std::thread other([&] { second = training::train(settings, test_device(1)); });
  first = training::train(settings, test_device(0));
  other.join();
  check_bits(first, settings);
  check_bits(second, settings);
}
