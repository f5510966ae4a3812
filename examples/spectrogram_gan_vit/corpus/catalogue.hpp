// SPDX-License-Identifier: MIT
// Plans the clips of a synthetic corpus: their ids, splits, labels and seeds. A clip's id decides its split;
// the corpus' seed and the id decide all else. If the corpus is made again with more clips, its earlier clips
// stay in their splits.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>

#include "../clips/annotations.hpp"
#include "dice.hpp"
#include "render.hpp"
#include "traits.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spectrogram_gan {

/// A planned piece; its sound is `perform(traits, seconds, seed)`.
struct CorpusClip {
  std::int64_t id = 0;
  Split split = Split::train;
  double valence_mean = 5, arousal_mean = 5;  ///< on DEAM's scale of 1 to 9, in tenths
  Traits traits;
  std::uint64_t seed = 0;
};

/// Returns the clip with the number `index` in a split. Labels are spread evenly over the whole square.
[[nodiscard]] inline CorpusClip plan_clip(std::uint64_t corpus_seed, Split split, std::int64_t index) {
  CorpusClip clip;
  clip.split = split;
  clip.id = 3 * index + static_cast<std::int64_t>(split) + 1;
  clip.seed = looptorch::derive_seed(corpus_seed, static_cast<std::uint64_t>(clip.id));
  Dice dice(~clip.seed);
  clip.valence_mean = 1 + 0.1 * static_cast<double>(dice.below(81));
  clip.arousal_mean = 1 + 0.1 * static_cast<double>(dice.below(81));
  clip.traits = draw_traits({(clip.valence_mean - 5) / 4, (clip.arousal_mean - 5) / 4}, dice);
  return clip;
}

/// Returns the clips of all splits, training first.
[[nodiscard]] inline std::vector<CorpusClip> plan_corpus(std::uint64_t corpus_seed,
                                                         const std::array<std::int64_t, 3>& counts) {
  std::vector<CorpusClip> clips;
  for (const auto split : {Split::train, Split::validation, Split::test}) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(split)]; ++i)
      clips.push_back(plan_clip(corpus_seed, split, i));
  }
  return clips;
}

/// Returns a number with so many digits after the point, in any locale.
[[nodiscard]] inline std::string fixed_text(double value, int digits) {
  std::array<char, 32> text;
  return {text.data(),
          std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr};
}

/// Returns a table in DEAM's form (spaces in the header included) with the columns `split` and `origin`.
[[nodiscard]] inline std::string annotations_of(const std::vector<CorpusClip>& clips) {
  std::string text = "song_id, valence_mean, arousal_mean, split, tempo, mode\n";
  for (const auto& clip : clips) {
    text += looptorch::message(
        clip.id, ',', fixed_text(clip.valence_mean, 1), ',', fixed_text(clip.arousal_mean, 1), ',',
        std::array{"train", "validation", "test"}[static_cast<std::size_t>(clip.split)], ',',
        fixed_text(clip.traits.tempo, 0), ',', kModeNames[static_cast<std::size_t>(clip.traits.mode)], '\n');
  }
  return text;
}

}  // namespace spectrogram_gan
