// SPDX-License-Identifier: MIT
// Lists the peak FLOP/s of GPUs, by the names that CUDA reports.
#pragma once

#include <looptorch/flops/flops.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace looptorch {

/// A device's dense peaks in 10^12 FLOP/s (TFLOPS); 0 if unknown or unsupported.
struct DevicePeak {
  double fp32 = 0;
  double tf32 = 0;     ///< fp32's on GPUs without TF32
  double half = 0;     ///< fp16, with sums in fp32
  double bf16 = half;  ///< 0 on GPUs before Ampere

  [[nodiscard]] double of(Arithmetic arithmetic) const {
    switch (arithmetic) {
      case Arithmetic::fp32:
        return fp32;
      case Arithmetic::tf32:
        return tf32;
      case Arithmetic::fp16:
        return half;
      case Arithmetic::bf16:
        return bf16;
      case Arithmetic::fp64:
      case Arithmetic::other:
        return 0;
    }
    return 0;
  }
};

/// Returns the seconds that FLOPs take at a device's peak. Divided by the seconds taken, this is the model
/// FLOPs utilisation, MFU (Chowdhery et al. 2022). Empty if the device lacks a peak for some of the FLOPs.
[[nodiscard]] inline std::optional<double> seconds_at_peak(const Flops& flops, const DevicePeak& peak) {
  constexpr double kTera = 1e12;
  double seconds = 0;
  for (std::size_t i = 0; i < kArithmetics; ++i) {
    if (flops.of[i] == 0) continue;
    const double of_one = peak.of(static_cast<Arithmetic>(i));
    if (of_one <= 0) return std::nullopt;
    seconds += static_cast<double>(flops.of[i]) / (of_one * kTera);
  }
  return seconds;
}

namespace detail {

struct KnownPeak {
  std::string_view name;  ///< without a leading "NVIDIA "
  DevicePeak peak;
};

/// NVIDIA's data sheets and white papers of each GPU or architecture, without sparsity, at the boost clock:
/// Pascal and Volta (data sheets of Tesla P100 and V100), GeForce GTX 980 and 1080 (white papers; 2 x cores x
/// boost clock), Turing's, Ampere's GA102 and Ada's white papers (GeForce GPUs sum half precision in fp32 at
/// half the rate of fp16), data sheets of T4, A10, A30, A40, A100, L4, L40, L40S, H100, H200 and HGX B200
/// (where those give figures with sparsity, half of them).
inline constexpr std::array kKnownPeaks{
    KnownPeak{"GeForce GTX 980", {5.0, 5.0, 0, 0}},
    KnownPeak{"GeForce GTX 1080", {8.9, 8.9, 0, 0}},
    KnownPeak{"GeForce GTX 1080 Ti", {11.3, 11.3, 0, 0}},
    KnownPeak{"Tesla P100-PCIE-16GB", {9.3, 9.3, 18.7, 0}},
    KnownPeak{"Tesla P100-SXM2-16GB", {10.6, 10.6, 21.2, 0}},
    KnownPeak{"Tesla V100-PCIE-16GB", {14.0, 14.0, 112, 0}},
    KnownPeak{"Tesla V100-PCIE-32GB", {14.0, 14.0, 112, 0}},
    KnownPeak{"Tesla V100S-PCIE-32GB", {16.4, 16.4, 130, 0}},
    KnownPeak{"Tesla V100-SXM2-16GB", {15.7, 15.7, 125, 0}},
    KnownPeak{"Tesla V100-SXM2-32GB", {15.7, 15.7, 125, 0}},
    KnownPeak{"Tesla T4", {8.1, 8.1, 65, 0}},
    KnownPeak{"GeForce RTX 2070", {7.5, 7.5, 29.9, 0}},
    KnownPeak{"GeForce RTX 2080", {10.1, 10.1, 40.3, 0}},
    KnownPeak{"GeForce RTX 2080 Ti", {13.4, 13.4, 53.8, 0}},
    KnownPeak{"GeForce RTX 3060", {12.7, 12.7, 25.5}},
    KnownPeak{"GeForce RTX 3060 Ti", {16.2, 16.2, 32.4}},
    KnownPeak{"GeForce RTX 3070", {20.3, 20.3, 40.6}},
    KnownPeak{"GeForce RTX 3070 Ti", {21.7, 21.7, 43.5}},
    KnownPeak{"GeForce RTX 3080", {29.8, 29.8, 59.5}},
    KnownPeak{"GeForce RTX 3080 Ti", {34.1, 34.1, 68.2}},
    KnownPeak{"GeForce RTX 3090", {35.6, 35.6, 71.0}},
    KnownPeak{"GeForce RTX 3090 Ti", {40.0, 40.0, 80.0}},
    KnownPeak{"GeForce RTX 4060", {15.1, 15.1, 30.2}},
    KnownPeak{"GeForce RTX 4060 Ti", {22.1, 22.1, 44.1}},
    KnownPeak{"GeForce RTX 4070", {29.1, 29.1, 58.3}},
    KnownPeak{"GeForce RTX 4070 SUPER", {35.5, 35.5, 71.0}},
    KnownPeak{"GeForce RTX 4070 Ti", {40.1, 40.1, 80.2}},
    KnownPeak{"GeForce RTX 4070 Ti SUPER", {44.1, 44.1, 88.2}},
    KnownPeak{"GeForce RTX 4080", {48.7, 48.7, 97.5}},
    KnownPeak{"GeForce RTX 4080 SUPER", {52.2, 52.2, 104.4}},
    KnownPeak{"GeForce RTX 4090", {82.6, 82.6, 165.2}},
    KnownPeak{"A10", {31.2, 62.5, 125}},
    KnownPeak{"A30", {10.3, 82, 165}},
    KnownPeak{"A40", {37.4, 74.8, 149.7}},
    KnownPeak{"RTX A6000", {38.7, 77.4, 154.8}},
    KnownPeak{"A100-SXM4-40GB", {19.5, 156, 312}},
    KnownPeak{"A100-SXM4-80GB", {19.5, 156, 312}},
    KnownPeak{"A100-PCIE-40GB", {19.5, 156, 312}},
    KnownPeak{"A100 80GB PCIe", {19.5, 156, 312}},
    KnownPeak{"L4", {30.3, 60.5, 121}},
    KnownPeak{"L40", {90.5, 90.5, 181}},
    KnownPeak{"L40S", {91.6, 183, 362}},
    KnownPeak{"H100 80GB HBM3", {67, 494.5, 989}},
    KnownPeak{"H100 PCIe", {51, 378, 756}},
    KnownPeak{"H100 NVL", {60, 417.5, 835.5}},
    KnownPeak{"H200", {67, 494.5, 989}},
    KnownPeak{"H200 NVL", {60, 417.5, 835.5}},
    KnownPeak{"GH200 480GB", {67, 494.5, 989}},
    KnownPeak{"B200", {75, 1125, 2250}},
};

}  // namespace detail

/// Returns the peaks of a device by its name, such as "NVIDIA A10" or "Tesla T4". Empty for unknown devices:
/// other GPUs, variants with other clocks or power limits ("Laptop GPU", "Max-Q"), and parts of a GPU.
[[nodiscard]] inline std::optional<DevicePeak> peak_of_device(std::string_view name) {
  constexpr std::string_view kMaker = "NVIDIA ";
  if (name.starts_with(kMaker)) name.remove_prefix(kMaker.size());
  for (const detail::KnownPeak& known : detail::kKnownPeaks)
    if (known.name == name) return known.peak;
  return std::nullopt;
}

}  // namespace looptorch
