// SPDX-License-Identifier: MIT
// Defines the clips and batches of KonkaniVani: a clip has log-mel frames and the ids of its text; a batch
// pads both.
//
// Shapes: B batch, M mel bins, F mel frames of 10 ms.
#pragma once

#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/data/batch/batch_empty.hpp>

#include "../model/encoder.hpp"
#include "../model/loss.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace konkanivani {

/// The augmentation of clips in training. The mask sizes are those of the public KonkaniVani project; no mask
/// hides more than a fifth of a clip's time.
struct AugmentOptions {
  std::vector<double> speeds{0.9, 1.0, 1.1};
  looptorch::audio::SpecAugmentOptions masks{.max_frames = 70, .max_bins = 27, .max_time_share = 0.2};
};

/// The limits of a batch, which has as many clips as both allow; 0 is no limit.
struct BatchSize {
  std::int64_t frames = 0;  ///< mel frames, padding included
  std::int64_t clips = 0;
};

struct Clip {
  std::int64_t index = 0;  ///< its number in the dataset
  at::Tensor mel_MF;
  std::vector<std::int64_t> ids;
  std::string text;  ///< normalised
};

struct Batch {
  at::Tensor mel_BMF;
  at::Tensor lengths_B;               ///< mel frames of each clip
  std::vector<std::int64_t> indices;  ///< the clips' numbers in their dataset
  Targets targets;
  std::vector<std::string> texts;

  /// Returns samples [begin, end).
  [[nodiscard]] Batch slice(std::int64_t begin, std::int64_t end) const {
    const auto rows = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, end - begin); };
    const auto items = [&](const auto& list) {
      return std::decay_t<decltype(list)>(list.begin() + begin, list.begin() + end);
    };
    return {.mel_BMF = rows(mel_BMF),
            .lengths_B = rows(lengths_B),
            .indices = items(indices),
            .targets = targets.slice(begin, end),
            .texts = items(texts)};
  }
};

/// Returns the padded length of clips of up to `frames` mel frames: the next multiple of 32. Batches then
/// have a few shapes instead of hundreds, for which libraries reuse their preparations (oneDNN's kernels,
/// cuDNN's plans).
[[nodiscard]] inline std::int64_t padded_frames(std::int64_t frames) { return next_multiple(frames, 32); }

/// Pads clips with zeros to `padded_frames` of the longest, and texts to a multiple of `text_multiple`
/// characters. In a loader the tensors lie in the loader's reused memory.
[[nodiscard]] inline Batch collate(std::span<Clip> clips, std::int64_t text_multiple = 1) {
  std::int64_t longest = 0;
  for (const auto& clip : clips) longest = std::max(longest, clip.mel_MF.size(1));
  longest = padded_frames(longest);
  const auto rows = static_cast<std::int64_t>(clips.size());
  Batch batch{.mel_BMF = looptorch::batch_empty({rows, clips.front().mel_MF.size(0), longest}, at::kFloat),
              .lengths_B = looptorch::batch_empty({rows}, at::kLong),
              .indices = {},
              .targets = {},
              .texts = {}};
  std::vector<std::vector<std::int64_t>> ids;
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& clip = clips[static_cast<std::size_t>(row)];
    const auto count = clip.mel_MF.size(1);
    batch.mel_BMF[row].narrow(1, 0, count).copy_(clip.mel_MF);
    batch.mel_BMF[row].narrow(1, count, longest - count).zero_();
    batch.lengths_B[row] = count;
    batch.indices.push_back(clip.index);
    batch.texts.push_back(std::move(clip.text));
    ids.push_back(std::move(clip.ids));
  }
  batch.targets = make_targets(ids, text_multiple);
  return batch;
}

}  // namespace konkanivani
