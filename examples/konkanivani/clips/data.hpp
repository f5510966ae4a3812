// SPDX-License-Identifier: MIT
// Speech for KonkaniVani: audio files become log-mel frames and texts become ids; a batch pads both. Training
// changes the audio's speed and masks parts of its frames, anew in each epoch.
//
// Shapes: B batch, M mel bins, F mel frames of 10 ms.
#pragma once

#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/manifest/listed_lines.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>
#include <looptorch/preflight/hard_batches.hpp>
#include <looptorch/preflight/sample_batches.hpp>

#include "../model/encoder.hpp"
#include "../model/loss.hpp"
#include "../text/vocabulary.hpp"
#include "clip_frames.hpp"
#include "skipped_items.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace konkanivani {

/// The augmentation of clips in training. The masks are the first project's; none of them hides more than a
/// fifth of a clip's time.
struct AugmentOptions {
  std::vector<double> speeds{0.9, 1.0, 1.1};
  looptorch::audio::SpecAugmentOptions masks{.max_frames = 70, .max_bins = 27, .max_time_share = 0.2};
};

/// The limits of a batch: as many clips as fit into both; 0 is no limit.
struct BatchSize {
  std::int64_t frames = 0;  ///< mel frames, padding included
  std::int64_t clips = 0;
};

struct Clip {
  std::int64_t index = 0;  ///< in the dataset
  at::Tensor mel_MF;
  std::vector<std::int64_t> ids;
  std::string text;  ///< normalised
};

struct Batch {
  at::Tensor mel_BMF;
  at::Tensor lengths_B;               ///< mel frames of each clip
  std::vector<std::int64_t> indices;  ///< of the clips in their dataset
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

/// Pads clips with zeros to the longest's `padded_frames`, and texts to a multiple of characters, in the
/// loader's slot if one is open.
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

/// The utterances of a manifest as samples. Encodes texts and reads headers of audio files once, at
/// construction, to find faults before training begins; decodes audio when a sample is requested. A clip's
/// duration is that of its file, or of its part, whatever its line says.
class SpeechDataset {
 public:
  /// Checks and encodes the utterances. Notes characters outside the vocabulary in `unknown`. Skips a text
  /// without characters, a clip longer than `max_seconds` and a header that looptorch::audio::ClipLengths
  /// refuses, and lists them in `skipped`; without it throws SpeechError or AudioError, which names the file.
  /// Throws SpeechError if no clip is left.
  SpeechDataset(std::vector<looptorch::Utterance> utterances, const Vocabulary& vocabulary,
                SpeechOptions options, UnknownCharacters& unknown, SkippedItems* skipped = nullptr)
      : options_(std::move(options)) {
    const looptorch::audio::ClipLengths seconds_of;
    std::string first_fault;
    for (auto& utterance : utterances) {
      auto ids = vocabulary.encode(utterance.text, unknown);
      try {
        check(utterance, ids, seconds_of);
      } catch (const looptorch::Error& error) {
        list_or_rethrow(skipped, error);
        if (first_fault.empty()) first_fault = error.what();
        continue;
      }
      texts_.push_back(normalize(utterance.text));
      ids_.push_back(std::move(ids));
      utterances_.push_back(std::move(utterance));
    }
    if (utterances_.empty())
      throw SpeechError(looptorch::message("none of ", utterances.size(), " clips can be used",
                                           first_fault.empty() ? "" : "; the first: " + first_fault));
    lines_ = looptorch::LineFingerprints(utterances_);
    play_at({1.0});
  }

  /// Augments samples from now on.
  void augment(const AugmentOptions& options) {
    play_at(options.speeds);
    masks_.emplace(options.masks);
  }

  /// Pads the texts of a batch to a multiple of so many characters from now on.
  void pad_texts(std::int64_t multiple) { text_multiple_ = multiple; }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances_.size()); }

  [[nodiscard]] std::filesystem::path path(std::int64_t index) const {
    return utterances_[static_cast<std::size_t>(index)].audio_filepath;
  }

  [[nodiscard]] const looptorch::Utterance& utterance(std::int64_t index) const {
    return utterances_[static_cast<std::size_t>(index)];
  }

  /// Returns the clip's line, by which a resumed run recognises its data.
  [[nodiscard]] std::string fingerprint(std::int64_t index) const { return lines_(utterance(index)); }

  /// Reads one clip. Throws what LogMelReader throws.
  [[nodiscard]] Clip get(std::int64_t index, const looptorch::SampleContext& context) const {
    const auto i = static_cast<std::size_t>(index);
    const auto speed = static_cast<std::int64_t>(context.seed % speeds_.size());
    auto mel_MF = frames_(index * std::ssize(speeds_) + speed);
    if (masks_) mel_MF = (*masks_)(mel_MF, context.seed);
    return {.index = index, .mel_MF = std::move(mel_MF), .ids = ids_[i], .text = texts_[i]};
  }

  [[nodiscard]] Batch collate(std::span<Clip> clips) const {
    return konkanivani::collate(clips, text_multiple_);
  }

  /// Returns the mel frames of each clip in a batch, at the slowest speed.
  [[nodiscard]] std::vector<std::int64_t> lengths() const {
    std::vector<std::int64_t> lengths;
    for (const auto& utterance : utterances_)
      lengths.push_back(padded_frames(mel_frames(*utterance.duration / speeds_.front())));
    return lengths;
  }

  /// Returns a sampler of batches of clips of similar length; a clip longer than `size` allows has a batch of
  /// its own.
  [[nodiscard]] looptorch::LengthBucketSampler by_length(const BatchSize& size, std::uint64_t seed = 0,
                                                         std::int64_t shortest_first_epochs = 0) const {
    return looptorch::LengthBucketSampler(lengths(), {.budget = size.frames,
                                                      .batch_size = size.clips,
                                                      .too_long = looptorch::TooLong::alone,
                                                      .seed = seed,
                                                      .shortest_first_epochs = shortest_first_epochs});
  }

  /// Returns the number of ids of each clip's text.
  [[nodiscard]] std::vector<std::int64_t> target_lengths() const {
    std::vector<std::int64_t> lengths;
    for (const auto& ids : ids_) lengths.push_back(std::ssize(ids));
    return lengths;
  }

  /// Returns the number of clips whose duration, at the fastest speed, leaves CTC too few frames for their
  /// text.
  [[nodiscard]] std::int64_t count_too_short() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < utterances_.size(); ++i) {
      const auto frames =
          encoder_frames(mel_frames(*utterances_[i].duration / speeds_.back()), options_.subsampling);
      count += frames < ctc_frames_needed(ids_[i]);
    }
    return count;
  }

 private:
  static std::int64_t mel_frames(double seconds) {
    constexpr double kRounding = 1e-6;  // for rounded durations in a manifest
    return std::max<std::int64_t>(1, std::llround(std::ceil(100 * seconds - kRounding)));
  }

  /// Throws for a clip that its text or its file makes unusable. Sets its duration.
  void check(looptorch::Utterance& utterance, const std::vector<std::int64_t>& ids,
             const looptorch::audio::ClipLengths& seconds_of) const {
    if (ids.empty())
      throw SpeechError(looptorch::message(utterance.audio_filepath.string(), ": ", "its text \"",
                                           utterance.text, "\" has no characters"));
    const double seconds = seconds_of(utterance);
    utterance.duration = seconds;
    looptorch::audio::ClipLimits{.max_seconds = options_.max_seconds}.check(utterance.audio_filepath,
                                                                            seconds);
  }

  void play_at(std::vector<double> speeds) {
    std::sort(speeds.begin(), speeds.end());
    frames_ = frames_source(ClipFrames(utterances_, options_, speeds), options_);
    speeds_ = std::move(speeds);
  }

  std::vector<looptorch::Utterance> utterances_;
  looptorch::LineFingerprints lines_;
  SpeechOptions options_;
  std::vector<std::string> texts_;
  std::vector<std::vector<std::int64_t>> ids_;
  std::int64_t text_multiple_ = 1;
  std::vector<double> speeds_;  // the slowest first: with seed 0, as in a preflight, a clip is longest
  FramesSource frames_;
  std::optional<looptorch::audio::SpecAugment> masks_;
};

/// Returns the batches that need the most memory, of those that `by_length` forms in its first epoch. Holds
/// `clips` by reference.
[[nodiscard]] inline looptorch::SampleBatches<SpeechDataset> hardest_batches(const SpeechDataset& clips,
                                                                             const BatchSize& size,
                                                                             std::uint64_t seed) {
  const auto frames = clips.lengths(), ids = clips.target_lengths();
  std::vector<looptorch::SampleLengths> lengths;
  for (std::size_t i = 0; i < frames.size(); ++i) lengths.push_back({frames[i], ids[i]});
  const auto plan = clips.by_length(size, seed).batches(/*epoch=*/0, clips.size());
  std::vector<std::vector<std::int64_t>> batches;
  for (std::int64_t i = 0; i < plan.size(); ++i)
    batches.emplace_back(plan.batch(i).begin(), plan.batch(i).end());
  return {clips, looptorch::hard_batches(lengths, batches)};
}

/// The hardest batches, and those of a smaller limit: --batch-size if the number of clips limits most
/// batches, else --batch-frames, so that a window of more and smaller batches keeps about its clips. A run
/// that `resumes` can only divide its --batch-size. Holds the clips by reference.
class HardestBatches {
 public:
  HardestBatches(const SpeechDataset& clips, const BatchSize& size, std::uint64_t seed, bool resumes = false)
      : clips_(clips),
        limit_(size),
        seed_(seed),
        resumes_(resumes),
        by_clips_(size.frames == 0 || (size.clips > 0 && (resumes || clips_limit_most()))) {}

  /// Returns the hardest batches of at most `most` clips, or frames. A resumed run cuts the batches that it
  /// has.
  [[nodiscard]] std::vector<Batch> of_at_most(std::int64_t most) const {
    if (by_clips_ && resumes_) return hardest_batches(clips_, limit_, seed_).of_at_most(most);
    BatchSize limit = limit_;
    (by_clips_ ? limit.clips : limit.frames) = most;
    return hardest_batches(clips_, limit, seed_).of_at_most(clips_.size());
  }
  /// Returns the limit in clips, or frames.
  [[nodiscard]] std::int64_t size() const { return by_clips_ ? limit_.clips : limit_.frames; }
  /// Returns the flag that sets the limit, and its smallest useful value: a batch has a clip. A resumed run
  /// whose clips have no limit has no such flag.
  [[nodiscard]] looptorch::app::MemoryFlags flags() const {
    if (by_clips_) return {};
    if (resumes_) return {.batch = ""};
    const auto frames = clips_.lengths();
    const auto longest = std::max_element(frames.begin(), frames.end());
    return {.batch = "--batch-frames", .least_batch = longest == frames.end() ? 1 : *longest};
  }

 private:
  [[nodiscard]] bool clips_limit_most() const {
    const auto plan = clips_.by_length(limit_, seed_).batches(/*epoch=*/0, clips_.size());
    std::int64_t full = 0;
    for (std::int64_t i = 0; i < plan.size(); ++i) full += std::ssize(plan.batch(i)) == limit_.clips;
    return 2 * full > plan.size();
  }

  const SpeechDataset& clips_;
  BatchSize limit_;
  std::uint64_t seed_;
  bool resumes_, by_clips_;
};

}  // namespace konkanivani
