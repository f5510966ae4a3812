// SPDX-License-Identifier: MIT
// Applies mel filters to spectra: squares the magnitudes, and sums them for each mel bin, weighted by the
// bin's filter. All mel spectrograms use it. On a CPU one pass reads only the few frequencies of each filter:
// 0.5 ms for 3000 frames, where tensor operators and a matmul would take 1.5. Other devices use these
// operators.
//
// Shapes: B clips, F frames, K frequencies, M mel bins.
#pragma once

#include <looptorch/audio/mel/device_constant.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace looptorch::audio {

/// Mel filters, and two ways to apply them: `in_one_pass` to a clip on the CPU, `by_operators` to a batch on
/// any device.
class MelPower {
 public:
  /// Takes filters `filters_MK`: float32 on the CPU, each row zero outside one run.
  explicit MelPower(at::Tensor filters_MK) : filters_MK_(std::move(filters_MK)) {
    const float* row = filters_MK_.on_cpu().const_data_ptr<float>();
    for (std::int64_t m = 0; m < bins(); ++m, row += frequencies()) runs_.push_back(run_of(row));
  }

  std::int64_t bins() const { return filters_MK_.on_cpu().size(0); }

  /// Converts complex `[B, F, K]` to float `[B, M, F]`, on any device, without TF32: its 10 bits would show
  /// in quiet bins.
  at::Tensor by_operators(const at::Tensor& spectrum_BFK) const {
    const at::NoTF32Guard full_precision;
    const at::Tensor parts = at::view_as_real(spectrum_BFK);
    const at::Tensor real = parts.select(-1, 0), imaginary = parts.select(-1, 1);
    const at::Tensor power_BFK = at::addcmul(real.square(), imaginary, imaginary);
    return at::matmul(filters_MK_.on(spectrum_BFK.device()), power_BFK.transpose(1, 2));
  }

  /// Converts complex `[F, K]`, contiguous, on the CPU, into float `[M, F]`. Its rows need not be adjacent.
  void in_one_pass(const at::Tensor& spectrum_FK, const at::Tensor& mel_MF) const {
    const auto* spectrum =
        static_cast<const float*>(spectrum_FK.const_data_ptr());  // real, imaginary, real, ...
    float* mel = mel_MF.mutable_data_ptr<float>();
    const std::int64_t frames = spectrum_FK.size(0), row = mel_MF.stride(0);
    at::parallel_for(
        0, (frames + kLanes - 1) / kLanes, kBlocksAtLeast, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t first = begin * kLanes; first < std::min(end * kLanes, frames); first += kLanes)
            do_block(spectrum + first * frequencies() * 2, mel + first, row,
                     std::min(kLanes, frames - first));
        });
  }

 private:
  static constexpr std::int64_t kLanes = 16;  // frames side by side in vector registers
  static constexpr std::int64_t kBlocksAtLeast = 32;
  using Lanes = std::array<float, kLanes>;
  using Vector [[gnu::vector_size(16)]] =
      float;  // a wider type, or a loop over an array, makes g++ 12 spill registers

  struct Run {
    std::int64_t first;
    std::vector<float> weights;
  };

  std::int64_t frequencies() const { return filters_MK_.on_cpu().size(1); }

  Run run_of(const float* row) const {
    const float *end = row + frequencies(),
                *first = std::find_if(row, end, [](float weight) { return weight != 0; });
    while (end > first && end[-1] == 0) --end;
    return {first - row, std::vector<float>(first, end)};
  }

  /// Converts `count` frames: the power of all frequencies, transposed so that frames are adjacent, then each
  /// filter's run.
  void do_block(const float* spectrum_FK, float* mel_MF, std::int64_t row, std::int64_t count) const {
    std::vector<Lanes> power(static_cast<std::size_t>(frequencies()), Lanes{});
    for (std::size_t lane = 0; lane < static_cast<std::size_t>(count); ++lane) {
      for (Lanes& at_frequency : power) {
        at_frequency[lane] = spectrum_FK[0] * spectrum_FK[0] + spectrum_FK[1] * spectrum_FK[1];
        spectrum_FK += 2;
      }
    }
    for (const Run& run : runs_) {
      Lanes sum;
      add_weighted(run, power.data() + run.first, sum);
      std::copy_n(sum.data(), count, mel_MF);
      mel_MF += row;
    }
  }

  static void add_weighted(const Run& run, const Lanes* power, Lanes& result) {
    for (std::size_t lane = 0; lane < result.size(); lane += sizeof(Vector) / sizeof(float)) {
      Vector sum{}, term;
      for (std::size_t k = 0; k < run.weights.size(); ++k) {
        std::memcpy(&term, &power[k][lane], sizeof term);
        sum += run.weights[k] * term;
      }
      std::memcpy(&result[lane], &sum, sizeof sum);
    }
  }

  DeviceConstant filters_MK_;
  std::vector<Run> runs_;
};

}  // namespace looptorch::audio
