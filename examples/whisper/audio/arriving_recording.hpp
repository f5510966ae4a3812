// SPDX-License-Identifier: MIT
// Cuts the sound from a pipe into windows of log-mel frames, each as soon as its samples have arrived;
// whisper_transcribe uses it for standard input. Holds one window, however long the stream lasts. Scales
// frames by the loudest frame so far, whereas a Recording scales by the loudest of the whole file.
//
// Shapes: M mel bins, T samples.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/clip_reader.hpp>

#include "arriving_log_mel.hpp"
#include "arriving_resampler.hpp"
#include "pcm_input.hpp"
#include "recording.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace whisper {

/// Windows of one stream, from its beginning on.
class ArrivingRecording {
 public:
  /// Reads `input` as windows need it. Throws UsageError for a rate that cannot be resampled.
  ArrivingRecording(int input, const PcmFormat& format, std::int64_t mel_bins, std::string name)
      : ArrivingRecording(std::make_unique<PcmReader>(input, format), mel_bins, std::move(name)) {}
  ArrivingRecording(std::unique_ptr<PcmReader> reader, std::int64_t mel_bins, std::string name)
      : name_(std::move(name)),
        reader_(std::move(reader)),
        resampler_(reader_->format().sample_rate, looptorch::audio::LogMel::kSampleRate),
        frames_(mel_bins) {}

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Waits for the frames before `end` or for the stream's end. Returns `end` or, if less, the number of
  /// frames in the stream. Discards frames before `begin`.
  [[nodiscard]] std::int64_t frames_until(std::int64_t begin, std::int64_t end) {
    while (frames_.ready() < end) {
      read_some();
      frames_.pass_over(begin);
    }
    return ended_ ? std::min(end, frames_.samples() / kSamplesPerFrame) : end;
  }

  /// True if there was a sound before frame `end`. Without one the loudness is unknown.
  [[nodiscard]] bool has_sound_before(std::int64_t end) const {
    return first_sound_ / kSamplesPerFrame < end;
  }

  /// Returns `[M, length]`: `count` frames from `first` on, then zeros.
  [[nodiscard]] at::Tensor window(std::int64_t first, std::int64_t count, std::int64_t length) {
    return at::constant_pad_nd(frames_(first, count), {0, length - count});
  }

  /// Returns `[M, length]`: the frames from `first` on, then frames of silence after the stream's end.
  [[nodiscard]] at::Tensor with_silence(std::int64_t first, std::int64_t length) {
    (void)frames_until(first, first + length);
    return frames_(first, length);
  }

  /// Throws if the stream ended badly; see PcmReader::check_end.
  void check_end() const {
    if (failure_) std::rethrow_exception(failure_);
    reader_->check_end();
  }

  /// Throws what check_end throws, and SpeechError for a stream that has ended without any sound.
  void check_sound() const {
    if (!ended_ || first_sound_ < kNever) return;
    check_end();
    if (frames_.samples() == 0) throw SpeechError(name_ + ": holds no samples");
    throw looptorch::audio::ClipSilent(name_ + ": is silent");
  }

 private:
  static constexpr std::int64_t kSamplesPerFrame = 160;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// Waits for samples, or for the end.
  void read_some() {
    const auto bytes = reader_->next();
    const auto samples_T = pcm_samples(bytes, reader_->format());
    take(resampler_.add(samples_T));
    arrived_ += samples_T.numel();
    const bool whole =
        samples_T.numel() == static_cast<std::int64_t>(bytes.size() / reader_->format().bytes());
    if (!whole)
      failure_ = std::make_exception_ptr(
          SpeechError(looptorch::message(name_, ": sample ", arrived_, " is not a finite number")));
    if (whole && !bytes.empty()) return;
    take(resampler_.finish());
    frames_.finish();
    ended_ = true;
  }

  void take(const at::Tensor& samples_T) {
    const auto* sample = samples_T.const_data_ptr<float>();
    const auto least = static_cast<float>(looptorch::audio::ClipReaderOptions().silence);
    for (std::int64_t i = 0; first_sound_ == kNever && i < samples_T.numel(); ++i)
      if (std::abs(sample[i]) >= least) first_sound_ = frames_.samples() + i;
    frames_.add(samples_T);
  }

  std::string name_;
  std::unique_ptr<PcmReader> reader_;
  ArrivingResampler resampler_;
  ArrivingLogMel frames_;
  std::int64_t arrived_ = 0;           // samples of the input
  std::int64_t first_sound_ = kNever;  // sample at 16 kHz
  bool ended_ = false;
  std::exception_ptr failure_{};
};

}  // namespace whisper
