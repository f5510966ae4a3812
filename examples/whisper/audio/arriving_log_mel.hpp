// SPDX-License-Identifier: MIT
// Computes Whisper's log-mel frames of a sound while it arrives from a pipe or a microphone, holding one
// window at a time. Whisper raises quiet frames to 80 dB below the loudest frame. LogMel takes the loudest
// frame of the whole sound; ArrivingLogMel can only take the loudest so far.
//
//   ArrivingLogMel frames(80);
//   frames.add(samples_T);             // as they arrive
//   if (frames.ready() >= 3000) use(frames(0, 3000));
//
// Shapes: T samples, M mel bins, F frames of 400 samples, one every 160 samples.
#pragma once

#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/mel/device_constant.hpp>
#include <looptorch/audio/mel/mel_filters.hpp>
#include <looptorch/audio/mel/mel_frames.hpp>
#include <looptorch/audio/mel/mel_power.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/hann_window.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace whisper {

/// The log-mel frames of one sound at 16 kHz. Frames are asked for in order; earlier ones are dropped.
class ArrivingLogMel {
 public:
  /// Throws UsageError for less than 1 mel bin.
  explicit ArrivingLogMel(std::int64_t mel_bins)
      : window_W_(at::hann_window(kWindow, at::kFloat)),
        power_(looptorch::audio::LogMel::filters(mel_bins)),
        held_MF_(at::empty({mel_bins, 0}, at::kFloat)) {}

  /// Takes the next samples, float32 `[T]` on the CPU. Throws UsageError after `finish`.
  void add(const at::Tensor& samples_T) {
    if (finished_)
      throw looptorch::UsageError("ArrivingLogMel: samples were added after the end of the sound");
    const at::Tensor whole_T = samples_T.contiguous();
    const float* samples = whole_T.const_data_ptr<float>();
    pending_.insert(pending_.end(), samples, samples + whole_T.numel());
    samples_ += whole_T.numel();
  }

  /// Ends the sound: silence follows.
  void finish() { finished_ = true; }

  /// Returns the number of samples so far.
  [[nodiscard]] std::int64_t samples() const { return samples_; }

  /// Returns the number of frames whose samples have all arrived. After `finish` it has no limit, since
  /// silence follows.
  [[nodiscard]] std::int64_t ready() const {
    if (finished_) return std::numeric_limits<std::int64_t>::max();
    return samples_ <= kHalf ? 0 : (samples_ - kHalf) / kHop + 1;
  }

  /// Drops the frames before `first`. Dropped frames still count for the loudest frame if they are ready.
  void pass_over(std::int64_t first) {
    if (first > held_begin_) compute(first, std::min(first, finished_ ? whole() : ready()));
  }

  /// Returns `count` frames from `first` on, float32 `[M, count]`, with frames of silence after the sound's
  /// end. Scales them by the loudest frame before `first + count` or, if the sound has ended, by the loudest
  /// of all, however the samples arrived. Throws UsageError for frames that are not ready, or that an earlier
  /// call has dropped.
  [[nodiscard]] at::Tensor operator()(std::int64_t first, std::int64_t count) {
    if (first < held_begin_ || first + count > ready())
      throw looptorch::UsageError(looptorch::message("ArrivingLogMel: frames ", first, " to ", first + count,
                                                     " cannot be had; there are those from ", held_begin_,
                                                     " to ", ready()));
    compute(first, first + count);
    if (finished_) compute(first, whole());
    return held_MF_.narrow(1, first - held_begin_, count).clamp_min(peak_ - 8.0).add_(4.0).div_(4.0);
  }

 private:
  static constexpr std::int64_t kWindow = 400, kHalf = kWindow / 2, kHop = 160;
  static constexpr std::int64_t kAtOnce = 3000;  // frames

  /// Returns the number of frames with at least one sample of the sound, once it has ended.
  [[nodiscard]] std::int64_t whole() const { return samples_ / kHop + 2; }
  [[nodiscard]] std::int64_t computed() const { return held_begin_ + held_MF_.size(1); }

  /// Computes the frames up to `end`, and drops those before `first`.
  void compute(std::int64_t first, std::int64_t end) {
    const c10::NoGradGuard no_grad;
    while (computed() < end) {
      const at::Tensor more_MF = next(std::min(kAtOnce, end - computed()));
      peak_ = std::max(peak_, static_cast<double>(more_MF.max().item<float>()));
      held_MF_ = at::cat({held_MF_, more_MF}, 1);
      drop_before(first);
    }
    drop_before(first);
  }

  /// Returns log10 of the mel power of the next frames, `[M, count]`.
  at::Tensor next(std::int64_t count) {
    if (computed() == 0) mirror_beginning();
    const auto needed = static_cast<std::size_t>((count - 1) * kHop + kWindow);
    if (pending_.size() < needed) pending_.resize(needed, 0.0F);  // silence after the end
    const at::Tensor samples_1T =
        at::from_blob(pending_.data(), {1, static_cast<std::int64_t>(needed)}, at::kFloat);
    const at::Tensor mel_MF = looptorch::audio::mel_of_frames(samples_1T, window_W_, kHop, count, power_)[0]
                                  .clamp_min_(1e-10)
                                  .log10_();
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count * kHop));
    return mel_MF;
  }

  /// Puts half a window before the sound, since a centred frame sees its beginning mirrored.
  void mirror_beginning() {
    pending_.resize(std::max<std::size_t>(pending_.size(), kHalf + 1), 0.0F);
    std::vector<float> mirrored(pending_.begin() + 1, pending_.begin() + kHalf + 1);
    std::reverse(mirrored.begin(), mirrored.end());
    pending_.insert(pending_.begin(), mirrored.begin(), mirrored.end());
  }

  void drop_before(std::int64_t first) {
    const std::int64_t gone = std::min(first - held_begin_, held_MF_.size(1));
    held_MF_ = held_MF_.slice(1, gone);
    held_begin_ += gone;
  }

  looptorch::audio::DeviceConstant window_W_;
  looptorch::audio::MelPower power_;
  std::vector<float> pending_;  // from the first sample of the next frame on
  at::Tensor held_MF_;
  std::int64_t held_begin_ = 0, samples_ = 0;
  double peak_ = -10;  // log10 of the loudest mel power so far
  bool finished_ = false;
};

}  // namespace whisper
