// SPDX-License-Identifier: MIT
// Adds clips to a run's report, to be played there. The report holds the sound itself, so the total length of
// the clips is limited: a minute takes 2.6 MB.
#pragma once

#include <looptorch/audio/clip_reader.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::audio {

/// A clip of a report. The report shows examples with the same title together, such as a clip and its text.
struct TitledClip {
  std::string title;
  Utterance clip;

  friend bool operator==(const TitledClip&, const TitledClip&) = default;
};

/// Reads the clips of a report once, although they are offered after each validation.
class SoundExamples {
 public:
  static constexpr std::int64_t kRate = 16000;  ///< Hz

  /// `seconds` is the limit on all clips together: a minute is 2.6 MB of report.html.
  explicit SoundExamples(double seconds = 60) : seconds_(seconds) {}

  /// Appends the clips' sound to `examples`, in order. Clips are played whole: one that is longer than what
  /// remains of the limit is skipped, and so is one that cannot be read. Files are read only if the clips
  /// differ from those of the last call.
  void add_to(std::vector<Example>& examples, const std::vector<TitledClip>& clips) {
    if (clips != clips_) read(clips);
    examples.insert(examples.end(), sounds_.begin(), sounds_.end());
  }

 private:
  void read(const std::vector<TitledClip>& clips) {
    clips_ = clips;
    sounds_.clear();
    double left = seconds_;
    for (const TitledClip& titled : clips) {
      auto sound = left > 0 ? read(titled, left) : std::nullopt;
      if (!sound) continue;
      left -= static_cast<double>(sound->samples.size()) / kRate;
      sounds_.push_back(*std::move(sound));
    }
  }

  static std::optional<SoundExample> read(const TitledClip& titled, double left) try {
    const ClipReader reader({.sample_rate = kRate, .limits = {.max_seconds = left}, .silence = 0});
    const at::Tensor samples_T = reader(titled.clip).contiguous();
    const float* first = samples_T.const_data_ptr<float>();
    return SoundExample{titled.title, kRate, {first, first + samples_T.numel()}};
  } catch (const Error&) {  // too long, damaged, or gone since the run began
    return std::nullopt;
  }

  double seconds_;
  std::vector<TitledClip> clips_;
  std::vector<Example> sounds_;
};

}  // namespace looptorch::audio
