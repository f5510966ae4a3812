// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "unit/audio/signals.hpp"

#include <whisper/audio/arriving_resampler.hpp>

#include <cstdint>
#include <vector>

using whisper::ArrivingResampler;

TEST_CASE("A sound that arrives in pieces is resampled as the whole") {
  constexpr std::int64_t kTo = 16000;
  for (const std::int64_t from : {8000, 11025, 16000, 44100, 48000}) {
    for (const std::int64_t piece : {7, 1000, 100'000}) {
      CAPTURE(from, piece);
      const auto whole_T = signals::as_samples(signals::music((piece == 7 ? from / 2 : 3 * from) + 17, from));
      const auto expected_N = looptorch::audio::resample(whole_T, from, kTo);
      ArrivingResampler arriving(from, kTo);
      std::vector<at::Tensor> parts;
      std::int64_t given = 0;
      for (std::int64_t at = 0; at < whole_T.numel(); at += piece) {
        const auto count = std::min(piece, whole_T.numel() - at);
        parts.push_back(arriving.add(whole_T.narrow(0, at, count)));
        given += parts.back().numel();
        REQUIRE(given >= (at + count) * kTo / from - 200);  // nothing is held back for long
      }
      parts.push_back(arriving.finish());
      const auto got_N = at::cat(parts);
      REQUIRE(got_N.sizes() == expected_N.sizes());
      CHECK((got_N - expected_N).abs().max().item<double>() <= (from == kTo ? 0 : 1e-5));
      CHECK(arriving.finish().numel() == 0);
    }
  }
}

TEST_CASE("A sound of no samples, or of one, is resampled, too; rates are checked") {
  CHECK(ArrivingResampler(8000, 16000).finish().numel() == 0);
  ArrivingResampler one(8000, 16000);
  auto samples_T = one.add(at::ones({1}));
  samples_T = at::cat({samples_T, one.finish()});
  CHECK(at::allclose(samples_T, looptorch::audio::resample(at::ones({1}), 8000, 16000)));
  CHECK_THROWS_AS(ArrivingResampler(0, 16000), looptorch::UsageError);
}
