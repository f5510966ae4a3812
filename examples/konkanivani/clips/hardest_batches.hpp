// SPDX-License-Identifier: MIT
// Finds the batches of speech that need the most memory. A preflight makes its dry steps on them. If the run
// does not fit, also finds the hardest batches of smaller sizes.
#pragma once

#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/preflight/hard_batches.hpp>
#include <looptorch/preflight/sample_batches.hpp>

#include "batch.hpp"
#include "speech_dataset.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace konkanivani {

/// Returns the batches that need the most memory among those of `by_length`'s first epoch. Keeps a reference
/// to `clips`.
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

/// Selects the hardest batches of the run's batch size, and of smaller sizes that a preflight tries. The size
/// is that of --batch-size if the number of clips limits most batches, else of --batch-frames. With smaller
/// batches a window has more of them, so it keeps about as many clips. A run that `resumes` splits the
/// batches of its original plan, and only by --batch-size. Keeps a reference to the clips.
class HardestBatches {
 public:
  HardestBatches(const SpeechDataset& clips, const BatchSize& size, std::uint64_t seed, bool resumes = false)
      : clips_(clips),
        limit_(size),
        seed_(seed),
        resumes_(resumes),
        by_clips_(size.frames == 0 || (size.clips > 0 && (resumes || clips_limit_most()))) {}

  /// Returns the hardest batches of at most `most` clips, or frames. A resumed run splits the batches of its
  /// plan.
  [[nodiscard]] std::vector<Batch> of_at_most(std::int64_t most) const {
    if (by_clips_ && resumes_) return hardest_batches(clips_, limit_, seed_).of_at_most(most);
    BatchSize limit = limit_;
    (by_clips_ ? limit.clips : limit.frames) = most;
    return hardest_batches(clips_, limit, seed_).of_at_most(clips_.size());
  }
  /// Returns the limit in clips, or frames.
  [[nodiscard]] std::int64_t size() const { return by_clips_ ? limit_.clips : limit_.frames; }
  /// Returns the flag that sets the limit, and its smallest useful value, at which the longest clip still
  /// fits. A resumed run without a limit on clips has no such flag.
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
