// SPDX-License-Identifier: MIT
// Reads a recording from beginning to end, a block at a time, so that many hours need no more memory than a
// minute. The samples equal those of `decode`: bit for bit at the file's own rate, up to rounding if
// resampled.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/resample.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace looptorch::audio {

/// The samples of a file, in order. Holds a block, and the inputs that resampling the next block needs.
class SampleStream {
 public:
  /// Opens a file to be resampled to `sample_rate` Hz; 0 keeps the file's rate. Errors begin with `name`; if
  /// that is empty, with `path`. Throws what `decode` throws: FileError for a missing file, AudioError for
  /// one that is cut off, empty or no audio, and UsageError for a negative rate.
  explicit SampleStream(const std::filesystem::path& path, std::int64_t sample_rate = 0,
                        const std::filesystem::path& name = {})
      : name_(name.empty() ? path : name),
        file_(checked(path, sample_rate), name_),
        sample_rate_(sample_rate > 0 ? sample_rate : file_.rate()),
        resampler_(detail::resampler_for(name_, file_.rate(), sample_rate_)) {}

  [[nodiscard]] std::int64_t sample_rate() const { return sample_rate_; }

  /// Returns the number of samples of the whole file at this rate.
  [[nodiscard]] std::int64_t length() const { return resampler_.length(file_.frames()); }

  /// Returns the number of samples returned so far.
  [[nodiscard]] std::int64_t position() const { return position_; }

  /// Returns the next `count` samples, float32 `[count]`; fewer at the file's end, none after it. Throws
  /// AudioError for a file that ends before its announced length, and for samples that are not finite.
  [[nodiscard]] at::Tensor next(std::int64_t count) {
    const SampleRange wanted{position_, position_ + std::min(count, length() - position_)};
    if (wanted.begin >= wanted.end) return at::empty({0}, at::kFloat);
    const SampleRange needed = resampler_.inputs(wanted, file_.frames());
    hold(needed);
    position_ = wanted.end;
    return resampler_(held_T_).narrow(0, wanted.begin - resampler_.length(needed.begin),
                                      wanted.end - wanted.begin);
  }

 private:
  static const std::filesystem::path& checked(const std::filesystem::path& path, std::int64_t sample_rate) {
    if (sample_rate < 0)
      throw UsageError(looptorch::message(path.string(), ": cannot be read at ", sample_rate, " Hz"));
    return path;
  }

  /// Drops inputs before `needed` and reads up to its end. Between calls `needed` must not move back.
  void hold(SampleRange needed) {
    held_T_ = held_T_.slice(0, needed.begin - held_begin_);
    held_begin_ = needed.begin;
    const std::int64_t held_end = held_begin_ + held_T_.numel();
    if (needed.end <= held_end) return;
    const at::Tensor more_T = file_.read({held_end, needed.end});
    detail::refuse_non_finite(name_, more_T, held_end);
    held_T_ = held_T_.numel() == 0 ? more_T : at::cat({held_T_, more_T});
  }

  std::filesystem::path name_;
  detail::SoundFile file_;
  std::int64_t sample_rate_;
  Resampler resampler_;
  at::Tensor held_T_ = at::empty({0}, at::kFloat);
  std::int64_t held_begin_ = 0, position_ = 0;
};

}  // namespace looptorch::audio
