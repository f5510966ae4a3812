// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/flops/device_peaks.hpp>

#include <set>
#include <string_view>

namespace lt = looptorch;
using lt::Arithmetic;

TEST_CASE("DevicePeak: cards by the names that CUDA gives them") {
  CHECK(lt::peak_of_device("Tesla T4")->of(Arithmetic::fp16) == 65);
  CHECK(lt::peak_of_device("Tesla T4")->of(Arithmetic::bf16) == 0);
  CHECK(lt::peak_of_device("Tesla V100-SXM2-16GB")->of(Arithmetic::fp16) == 125);
  CHECK(lt::peak_of_device("NVIDIA GeForce GTX 980")->of(Arithmetic::fp32) == 5);
  CHECK(lt::peak_of_device("GeForce GTX 1080")->of(Arithmetic::tf32) == 8.9);
  CHECK(lt::peak_of_device("NVIDIA GeForce RTX 3090")->of(Arithmetic::bf16) == 71);
  CHECK(lt::peak_of_device("NVIDIA A10")->of(Arithmetic::tf32) == 62.5);
  CHECK(lt::peak_of_device("NVIDIA A100-SXM4-80GB")->of(Arithmetic::bf16) == 312);
  CHECK(lt::peak_of_device("NVIDIA H100 80GB HBM3")->of(Arithmetic::fp16) == 989);
  CHECK(lt::peak_of_device("NVIDIA H100 PCIe")->of(Arithmetic::fp16) == 756);
  CHECK(lt::peak_of_device("NVIDIA H200")->of(Arithmetic::fp32) == 67);
  CHECK(lt::peak_of_device("NVIDIA B200")->of(Arithmetic::bf16) == 2250);
}

TEST_CASE("DevicePeak: unknown for other clocks, parts of a card and no card") {
  for (const char* name : {"", "NVIDIA ", "cpu", "NVIDIA GeForce RTX 3080 Laptop GPU", "A100",
                           "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA NVIDIA A10"}) {
    INFO(name);
    CHECK(!lt::peak_of_device(name));
  }
}

TEST_CASE("DevicePeak: the table has each name once, and faster arithmetic is not slower") {
  std::set<std::string_view> names;
  for (const auto& [name, peak] : lt::detail::kKnownPeaks) {
    INFO(std::string(name));
    CHECK(names.insert(name).second);
    CHECK(peak.fp32 > 0);
    CHECK(peak.tf32 >= peak.fp32);
    CHECK((peak.half == 0 || peak.half >= 1.9 * peak.fp32));
    CHECK((peak.bf16 == 0 || peak.bf16 == peak.half));
  }
}

TEST_CASE("seconds_at_peak: each arithmetic at its own peak") {
  const lt::DevicePeak peak{10, 50, 100, 0};
  lt::Flops flops;
  CHECK(*lt::seconds_at_peak(flops, peak) == 0);
  flops[Arithmetic::fp32] = 10'000'000'000'000;
  flops[Arithmetic::tf32] = 25'000'000'000'000;
  flops[Arithmetic::fp16] = 25'000'000'000'000;
  CHECK(*lt::seconds_at_peak(flops, peak) == Approx(1.75));
  flops[Arithmetic::bf16] = 1;
  CHECK(!lt::seconds_at_peak(flops, peak));
  flops[Arithmetic::bf16] = 0, flops[Arithmetic::fp64] = 1;
  CHECK(!lt::seconds_at_peak(flops, peak));
}
