// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"
#include "../tone_corpus.hpp"

#include <konkanivani/clips/hardest_batches.hpp>

#include <algorithm>
#include <vector>

using namespace konkanivani_test;

TEST_CASE("A preflight lowers the limit that most batches meet, and a resumed run divides its clips") {
  Corpus corpus({{16000, "क"}, {16000, "ख"}, {16000, "ग"}, {16000, "घ"}, {16000, "क"}, {16000, "ख"}});
  const auto dataset = corpus.dataset();
  const auto hardest = [&](const konkanivani::BatchSize& size, bool resumes = false) {
    return konkanivani::HardestBatches(dataset, size, 1, resumes);
  };
  const auto most_clips = [](const std::vector<konkanivani::Batch>& batches) {
    int64_t most = 0;
    for (const auto& batch : batches) most = std::max(most, batch.mel_BMF.size(0));
    return most;
  };
  const auto by_clips = hardest({.frames = 2400, .clips = 2});  // 128 frames each
  CHECK(by_clips.flags().batch == "--batch-size");
  CHECK(by_clips.size() == 2);
  CHECK(most_clips(by_clips.of_at_most(2)) == 2);
  CHECK(most_clips(by_clips.of_at_most(1)) == 1);

  const auto by_frames = hardest({.frames = 400, .clips = 64});
  CHECK(by_frames.flags().batch == "--batch-frames");
  CHECK(by_frames.flags().least_batch == 128);
  CHECK(by_frames.size() == 400);
  CHECK(most_clips(by_frames.of_at_most(400)) == 3);
  CHECK(most_clips(by_frames.of_at_most(200)) == 1);

  const auto resumed = hardest({.frames = 400, .clips = 64}, /*resumes=*/true);
  CHECK(resumed.flags().batch == "--batch-size");
  CHECK(resumed.size() == 64);
  CHECK(most_clips(resumed.of_at_most(64)) == 3);
  CHECK(most_clips(resumed.of_at_most(2)) == 2);
  CHECK(hardest({.frames = 400, .clips = 0}, /*resumes=*/true).flags().batch.empty());
  CHECK(hardest({.frames = 0, .clips = 4}).flags().batch == "--batch-size");
}
