// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "unit/audio/signals.hpp"

#include <whisper/audio/arriving_log_mel.hpp>

#include <algorithm>
#include <cstdint>

using Catch::Contains;
using looptorch::audio::LogMel;
using whisper::ArrivingLogMel;

namespace {

constexpr std::int64_t kRate = 16000;

/// Adds samples in pieces until frame `end` is ready, or all have arrived.
void arrive(ArrivingLogMel& frames, const at::Tensor& whole_T, std::int64_t piece, std::int64_t end) {
  while (frames.ready() < end) {
    const auto count = std::min(piece, whole_T.numel() - frames.samples());
    if (count == 0) return frames.finish();
    frames.add(whole_T.narrow(0, frames.samples(), count));
  }
}

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace

TEST_CASE("Frames of a sound that is arriving are those of the whole, however it arrives") {
  const std::int64_t count = 40 * kRate + 77;
  const auto whole_T = signals::as_samples(signals::music(count, kRate)) * 0.3;
  whole_T.narrow(0, 100, 3000).mul_(3);  // the loudest moment comes first
  const LogMel log_mel({.mel_bins = 80, .max_samples = count + 30 * kRate});
  const auto whole_MF = log_mel(whole_T);
  for (const std::int64_t piece : {50, 4096, 1'000'000}) {
    ArrivingLogMel frames(80);
    for (const std::int64_t first : {0, 0, 1, 900, 2345, 3990}) {
      CAPTURE(piece, first);
      arrive(frames, whole_T, piece, first + 1000);
      CHECK(distance(frames(first, 1000), whole_MF.narrow(1, first, 1000)) < 1e-5);
    }
    CHECK_THROWS_WITH(frames(3989, 1), Contains("there are those from 3990"));
    CHECK(frames(4100, 10).equal(frames(4200, 1).expand({80, 10})));  // silence
  }
}

TEST_CASE("The range is that of the loudest frame so far, and of the whole once the sound has ended") {
  const auto whole_T = at::zeros({4 * kRate});
  whole_T.narrow(0, 0, kRate).copy_(signals::as_samples(signals::music(kRate, kRate)) * 0.01);
  whole_T.narrow(0, 3 * kRate, kRate).copy_(signals::as_samples(signals::music(kRate, kRate)));
  const auto start_MF = LogMel({.mel_bins = 80, .max_samples = 2 * kRate})(whole_T.narrow(0, 0, 2 * kRate));
  const auto whole_MF = LogMel({.mel_bins = 80, .max_samples = 5 * kRate})(whole_T);
  at::Tensor first_MF;
  for (const std::int64_t piece : {160, 100'000}) {  // more may have arrived than is asked for
    ArrivingLogMel frames(80);
    arrive(frames, whole_T, piece, 200);
    const auto window_MF = frames(0, 199);
    CHECK(distance(window_MF, start_MF.narrow(1, 0, 199)) < 1e-5);
    CHECK(distance(window_MF, whole_MF.narrow(1, 0, 199)) > 0.1);  // of its silence
    CHECK((!first_MF.defined() || window_MF.equal(first_MF)));
    first_MF = window_MF;
    arrive(frames, whole_T, piece, 500);
    CHECK(distance(frames(0, 199), whole_MF.narrow(1, 0, 199)) < 1e-5);
  }
}

TEST_CASE("A frame is ready when all of its samples have arrived") {
  ArrivingLogMel frames(80);
  CHECK(frames.ready() == 0);
  frames.add(at::ones({200}));
  CHECK(frames.ready() == 0);  // the beginning is mirrored at the sample after that
  frames.add(at::ones({1}));
  CHECK(frames.ready() == 1);
  frames.add(at::ones({158}));
  CHECK(frames.ready() == 1);
  frames.add(at::ones({1}));
  CHECK(frames.ready() == 2);
  CHECK(frames(0, 2).sizes() == at::IntArrayRef{80, 2});
  CHECK_THROWS_AS(frames(0, 3), looptorch::UsageError);
  frames.finish();
  CHECK(frames(0, 3000).sizes() == at::IntArrayRef{80, 3000});
  CHECK_THROWS_WITH(frames.add(at::ones({1})), Contains("after the end of the sound"));
}

TEST_CASE("A sound shorter than a frame, and one of no samples, have LogMel's frames") {
  for (const std::int64_t count : {0, 1, 150}) {
    CAPTURE(count);
    const auto samples_T = signals::as_samples(signals::music(kRate, kRate)).narrow(0, 0, count);
    ArrivingLogMel frames(80);
    frames.add(samples_T);
    frames.finish();
    CHECK(distance(frames(0, 3000), LogMel()(samples_T)) < 1e-5);
  }
  CHECK_THROWS_AS(ArrivingLogMel(0), looptorch::UsageError);
}

TEST_CASE("Frames that are skipped are not kept, but count for the range") {
  const auto whole_T = signals::as_samples(signals::music(90 * kRate, kRate)) * 0.01;
  whole_T.narrow(0, kRate, kRate).mul_(50);
  ArrivingLogMel frames(80), passed(80);
  frames.add(whole_T);
  passed.add(whole_T);
  const auto all_MF = frames(0, 8900);
  CHECK(distance(passed(8800, 100), all_MF.narrow(1, 8800, 100)) < 1e-6);
  CHECK_THROWS_AS(passed(8799, 1), looptorch::UsageError);
  ArrivingLogMel by_block(80);
  for (std::int64_t at = 0; at < whole_T.numel(); at += kRate) {
    by_block.add(whole_T.narrow(0, at, kRate));
    by_block.pass_over(8800);
  }
  by_block.pass_over(10);
  CHECK(distance(by_block(8800, 100), all_MF.narrow(1, 8800, 100)) < 1e-6);
}
