// SPDX-License-Identifier: MIT
// Asks for devices on a LibTorch without CUDA, and computes on the one that there is.
#include <looptorch/app/device.hpp>
#include <looptorch/memory/empty_cache.hpp>

#include <ATen/ops/ones.h>

#include <cstdio>
#include <string>

namespace lt = looptorch;

int main() {
  const at::Device device = lt::app::choose_device("auto");
  std::string refusal;
  try {
    (void)lt::app::choose_device("cuda");
  } catch (const lt::UsageError& error) {
    refusal = error.what();
  }
  const double sum = at::ones({2}, device).sum().item<double>();
  std::printf("device %s, sum %g, freed %lld; %s\n", device.str().c_str(), sum,
              static_cast<long long>(lt::empty_cache(device)), refusal.c_str());
  const bool refused = refusal.find("there is no cuda; CUDA devices here: 0") != std::string::npos;
  return device.is_cpu() && sum == 2 && refused && !lt::app::detail::cuda_build() ? 0 : 1;
}
