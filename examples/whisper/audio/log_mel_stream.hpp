// SPDX-License-Identifier: MIT
// Computes Whisper's log-mel frames of a sound of any length in bounded memory. They equal those that LogMel
// computes of the whole sound. All frames depend on the loudest one, so a recording is read twice: once to
// find the loudest, once for the frames.
//
//   const LoudestFrame loudest = find_loudest(SampleStream(path, 16000));
//   LogMelStream frames(SampleStream(path, 16000), {.mel_bins = 80, .peak = loudest.log_mel});
//   frames(0, 3000);    // the first 30 s
//   frames(2800, 3000); // overlapping windows may go forward, never back
//
// Shapes: T samples, M mel bins, F frames of 400 samples, one every 160 samples.
#pragma once

#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/mel/device_constant.hpp>
#include <looptorch/audio/mel/mel_filters.hpp>
#include <looptorch/audio/mel/mel_frames.hpp>
#include <looptorch/audio/mel/mel_power.hpp>
#include <looptorch/audio/sample_stream.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hann_window.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace whisper {

/// Options of LogMelStream.
struct LogMelStreamOptions {
  std::int64_t mel_bins = 80;                              ///< 80, or 128 for large-v3
  double peak = std::numeric_limits<double>::quiet_NaN();  ///< log10 of the loudest mel power: find_loudest
};

namespace detail {

/// Computes log10 of the mel power of a sound at 16 kHz, block by block; silence follows the sound's end.
class MelBlocks {
 public:
  static constexpr std::int64_t kFrames = 3000;  ///< frames of a block

  MelBlocks(looptorch::audio::SampleStream samples, std::int64_t mel_bins)
      : samples_(std::move(samples)),
        window_W_(at::hann_window(kWindow, at::kFloat)),
        power_(
            looptorch::audio::slaney_mel_filters(mel_bins, kWindow, looptorch::audio::LogMel::kSampleRate)) {}

  /// Returns the samples that the last `next` read, float32 `[T]`.
  [[nodiscard]] const at::Tensor& last_read() const { return last_read_T_; }
  [[nodiscard]] const looptorch::audio::SampleStream& samples() const { return samples_; }

  /// Returns `[M, kFrames]`.
  at::Tensor next() {
    const c10::NoGradGuard no_grad;
    constexpr std::int64_t kNeeded = (kFrames - 1) * kHop + kWindow, kHalf = kWindow / 2;
    const bool begins = !pending_T_.defined();
    last_read_T_ = samples_.next(kNeeded - (begins ? kHalf : pending_T_.numel()));
    at::Tensor padded_T = at::zeros({kNeeded}, at::kFloat);
    const std::int64_t first = begins ? kHalf : pending_T_.numel();
    padded_T.narrow(0, first, last_read_T_.numel()).copy_(last_read_T_);
    if (begins)  // a centred frame sees the beginning mirrored
      padded_T.narrow(0, 0, kHalf).copy_(padded_T.narrow(0, kHalf + 1, kHalf).flip(0));
    else
      padded_T.narrow(0, 0, first).copy_(pending_T_);
    pending_T_ = padded_T.slice(0, kFrames * kHop).clone();
    return looptorch::audio::mel_of_frames(padded_T.unsqueeze(0), window_W_, kHop, kFrames, power_)[0]
        .clamp_min_(1e-10)
        .log10_();
  }

 private:
  static constexpr std::int64_t kWindow = 400, kHop = 160;

  looptorch::audio::SampleStream samples_;
  looptorch::audio::DeviceConstant window_W_;
  looptorch::audio::MelPower power_;
  at::Tensor last_read_T_, pending_T_;
};

}  // namespace detail

/// How loud a recording becomes.
struct LoudestFrame {
  double log_mel = 0;        ///< log10 of the mel power
  float sample = 0;          ///< the largest magnitude
  std::int64_t samples = 0;  ///< length of the recording
};

/// Reads a whole recording at 16 kHz: 30 s of WAV take about 4 ms. `use` takes the samples of each block in
/// turn, float32 `[T]`. Throws what SampleStream throws.
template <class Use>
LoudestFrame find_loudest(looptorch::audio::SampleStream samples, std::int64_t mel_bins, Use&& use) {
  LoudestFrame loudest{.log_mel = -10, .samples = samples.length()};
  detail::MelBlocks blocks(std::move(samples), mel_bins);
  for (std::int64_t frames = 0; frames < loudest.samples / 160 + 2; frames += detail::MelBlocks::kFrames) {
    loudest.log_mel = std::max(loudest.log_mel, static_cast<double>(blocks.next().max().item<float>()));
    const at::Tensor& read_T = blocks.last_read();
    if (read_T.numel() == 0) continue;
    loudest.sample = std::max(loudest.sample, read_T.abs().max().item<float>());
    use(read_T);
  }
  return loudest;
}

/// Frames of a recording at 16 kHz, from its beginning on. Holds at most two windows of them.
class LogMelStream {
 public:
  /// Throws UsageError for samples of another rate, and without a peak.
  LogMelStream(looptorch::audio::SampleStream samples, LogMelStreamOptions options)
      : options_(checked(samples, options)), blocks_(std::move(samples), options.mel_bins) {
    held_MF_ = at::empty({options.mel_bins, 0}, at::kFloat);
  }

  /// Returns the frames from `first` on, float32 `[M, count]`, with frames of silence after the recording's
  /// end. Throws UsageError if an earlier call began at a later frame.
  [[nodiscard]] at::Tensor operator()(std::int64_t first, std::int64_t count) {
    if (first < held_begin_)
      throw looptorch::UsageError(looptorch::message("LogMelStream: frame ", first, " lies before frame ",
                                                     held_begin_, ", which was read already"));
    const c10::NoGradGuard no_grad;
    while (held_begin_ + held_MF_.size(1) < first + count) {
      drop_before(first);
      held_MF_ = at::cat({held_MF_, blocks_.next()}, 1);
    }
    drop_before(first);
    return held_MF_.narrow(1, 0, count).clamp_min(options_.peak - 8.0).add_(4.0).div_(4.0);
  }

 private:
  static LogMelStreamOptions checked(const looptorch::audio::SampleStream& samples,
                                     LogMelStreamOptions options) {
    if (samples.sample_rate() == looptorch::audio::LogMel::kSampleRate && options.mel_bins > 0 &&
        options.peak == options.peak)
      return options;
    throw looptorch::UsageError(
        looptorch::message("LogMelStream: ", options.mel_bins, " mel bins of samples at ",
                           samples.sample_rate(), " Hz with a peak of ", options.peak,
                           " cannot be made; needed are 16000 Hz and the peak of find_loudest"));
  }

  void drop_before(std::int64_t first) {
    const std::int64_t gone = std::min(first - held_begin_, held_MF_.size(1));
    held_MF_ = held_MF_.slice(1, gone);
    held_begin_ += gone;
  }

  LogMelStreamOptions options_;
  detail::MelBlocks blocks_;
  at::Tensor held_MF_;
  std::int64_t held_begin_ = 0;
};

}  // namespace whisper
