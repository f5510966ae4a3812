// SPDX-License-Identifier: MIT
// Changes the sample rate of a sound block by block, as the sound arrives from a pipe. The result equals
// `resample` of the whole sound, up to the rounding of sums. Holds one block and some milliseconds of the
// sound before it.
//
// Shapes: T samples in, N samples out.
#pragma once

#include <looptorch/audio/resample.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace whisper {

/// Resamples blocks of one sound, in order.
class ArrivingResampler {
 public:
  /// Takes rates in Hz. Throws what Resampler throws.
  ArrivingResampler(std::int64_t from_hz, std::int64_t to_hz) : resampler_(from_hz, to_hz) {}

  /// Takes the next samples, float32 `[T]`, and returns those at the other rate that depend on no later ones:
  /// `[N]`, which may be none.
  [[nodiscard]] at::Tensor add(const at::Tensor& samples_T) {
    held_T_ = at::cat({held_T_, samples_T});
    arrived_ += samples_T.numel();
    std::int64_t end = resampler_.length(arrived_);
    while (end > position_ && last_input_of(end - 1) > arrived_) --end;
    return take(end);
  }

  /// Returns the rest, after which the sound is silent.
  [[nodiscard]] at::Tensor finish() { return take(resampler_.length(arrived_)); }

 private:
  /// Returns the number of inputs up to the last one on which an output depends.
  [[nodiscard]] std::int64_t last_input_of(std::int64_t output) const {
    return resampler_.inputs({output, output + 1}, std::numeric_limits<std::int64_t>::max()).end;
  }

  /// Returns the outputs up to `end`, and drops the inputs that no later output needs.
  at::Tensor take(std::int64_t end) {
    if (end <= position_) return at::empty({0}, at::kFloat);
    const looptorch::audio::SampleRange needed = resampler_.inputs({position_, end}, arrived_);
    const at::Tensor input_T = held_T_.slice(0, needed.begin - held_begin_, needed.end - held_begin_);
    const at::Tensor output_N =
        resampler_(input_T).narrow(0, position_ - resampler_.length(needed.begin), end - position_);
    position_ = end;
    const std::int64_t kept = std::min(arrived_, resampler_.inputs({end, end + 1}, arrived_).begin);
    held_T_ = held_T_.slice(0, kept - held_begin_).clone();
    held_begin_ = kept;
    return output_N;
  }

  looptorch::audio::Resampler resampler_;
  at::Tensor held_T_ = at::empty({0}, at::kFloat);
  std::int64_t held_begin_ = 0, arrived_ = 0;  // inputs
  std::int64_t position_ = 0;                  // outputs
};

}  // namespace whisper
