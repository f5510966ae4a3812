// SPDX-License-Identifier: MIT
// Transforms, metrics and a cache that take tensors on a device: the CPU's numbers, constants on each device
// that asks for them, and no waits once these are there.
#include "support/precompiled.hpp"

#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/resample.hpp>
#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/memory/key_value_cache.hpp>
#include <looptorch/metrics/regression.hpp>

#include "support/device.hpp"

#include <spectrogram_gan_vit/sound/griffin_lim.hpp>
#include <spectrogram_gan_vit/sound/mel_inverse.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

at::Tensor samples_BT() {
  return torch::stack({torch::sin(torch::arange(1600) * 0.02), torch::sin(torch::arange(1600) * 0.3)});
}

using Transform = std::function<at::Tensor(const at::Tensor&)>;

struct Named {
  std::string name;
  Transform run;
  at::Tensor input;
  bool waits = false;  ///< It refuses values out of range, which it must read.
};

std::vector<Named> transforms() {
  const lt::audio::MelSpectrogramOptions mel{
      .sample_rate = 16000, .window = 64, .hop = 32, .mel_bins = 8, .unit = lt::audio::MelUnit::power};
  const at::Tensor power_BMF = torch::arange(2 * 8 * 12).reshape({2, 8, 12}).to(at::kFloat);
  return {
      {"LogMel", lt::audio::LogMel({.max_samples = 1600}), samples_BT()},
      {"Resampler", lt::audio::Resampler(16000, 11025), samples_BT()},
      {"SpecAugment", [augment = lt::audio::SpecAugment()](const at::Tensor& mel) { return augment(mel, 7); },
       power_BMF},
      {"MelInverse", spectrogram_gan::MelInverse(mel, 3), power_BMF, true},
      {"GriffinLim",
       [invert = spectrogram_gan::GriffinLim({.window = 64, .hop = 16, .iterations = 2})](
           const at::Tensor& magnitude) { return invert(magnitude, 5); },
       torch::arange(2 * 33 * 9).reshape({2, 33, 9}).to(at::kFloat), true},
  };
}

}  // namespace

TEST_CASE("transforms have the CPU's numbers on every device, and wait for none once they have been there") {
  if (!has_device()) return;
  for (const Named& transform : transforms()) {
    INFO(transform.name);
    const at::Tensor expected = transform.run(transform.input);
    for (c10::DeviceIndex i = 0; i < at::accelerator::deviceCount(); ++i) {
      const at::Tensor given = transform.input.to(test_device(i));
      const at::Tensor there = transform.run(given);
      CHECK(there.device() == test_device(i));
      CHECK(torch::allclose(there.cpu(), expected, 1e-3, 1e-3));
      if (transform.waits) continue;
      const NoWaits no_waits;
      CHECK_NOTHROW(transform.run(given));
    }
  }
}

TEST_CASE("regression metrics add on a device without a wait, and read once") {
  if (!has_device()) return;
  lt::RegressionMetrics on_cpu, there;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor wanted = torch::sin(torch::arange(i, i + 5).to(at::kFloat)),
                     predicted = wanted * 0.9 + 0.1;
    on_cpu.add(predicted, wanted);
    const at::Tensor predicted_there = predicted.to(test_device()), wanted_there = wanted.to(test_device());
    const NoWaits no_waits;
    CHECK_NOTHROW(there.add(predicted_there, wanted_there));
  }
  CHECK(there.count() == 15);
  CHECK(std::abs(there.concordance() - on_cpu.concordance()) <= tolerance(1e-9));
  if (!is_simulated()) return;
  const looptorch_test::accelerator::CountWaits counted;
  (void)there.moments();
  CHECK(counted.counts().host_waits == 1);
}

TEST_CASE("a key-value cache on a device holds what one on a CPU does, and appends without a wait") {
  if (!has_device()) return;
  const auto filled = [](at::Device device) {
    torch::manual_seed(5);
    lt::KeyValueCache cache;
    for (int step = 0; step < 40; ++step) {
      const at::Tensor keys = at::randn({3, 2, 1 + step % 2, 4}).to(device),
                       values = at::randn({3, 2, 1 + step % 2, 5}).to(device);
      const at::Tensor parents = torch::tensor({2, 0, 0}, at::kLong).to(device);
      const NoWaits no_waits;
      cache.append({keys, values});
      if (step % 7 == 3) cache.select(parents);
    }
    const lt::KeyValues held = cache.view();
    CHECK(held.keys.device() == device);
    return std::pair(held.keys.cpu(), held.values.cpu());
  };
  const auto on_cpu = filled(at::kCPU), there = filled(test_device());
  CHECK(torch::equal(on_cpu.first, there.first));
  CHECK(torch::equal(on_cpu.second, there.second));
}
