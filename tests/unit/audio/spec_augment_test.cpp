// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/spec_augment.hpp>

#include <set>

using looptorch::UsageError;
using looptorch::audio::SpecAugment;

namespace {

/// Which rows (dim 0) or columns (dim 1) of a masked `[M, F]` of ones are hidden throughout.
at::Tensor hidden(const at::Tensor& masked_MF, std::int64_t dim) { return masked_MF.eq(0).all(1 - dim); }

std::int64_t count(const at::Tensor& flags) { return flags.sum().item<int64_t>(); }

/// How many runs of true.
std::int64_t runs(const at::Tensor& flags) {
  const at::Tensor steps = flags.to(torch::kInt);
  return steps[0].item<int64_t>() + count((steps.slice(0, 1) - steps.slice(0, 0, -1)).eq(1));
}

}  // namespace

TEST_CASE("masks are runs of every width up to the maximum, anywhere, and nothing else changes") {
  const SpecAugment augment({.max_frames = 7, .max_bins = 3, .fill = 0});
  const at::Tensor ones_MF = torch::ones({12, 30});
  std::set<std::int64_t> widths, heights;
  at::Tensor places_F = torch::zeros({30}, torch::kBool), places_M = torch::zeros({12}, torch::kBool);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const at::Tensor masked_MF = augment(ones_MF, seed);
    const at::Tensor frames_F = hidden(masked_MF, 1), bins_M = hidden(masked_MF, 0);
    REQUIRE(runs(frames_F) <= 1);
    REQUIRE(runs(bins_M) <= 1);
    const at::Tensor shown_MF = frames_F.logical_not().unsqueeze(0) & bins_M.logical_not().unsqueeze(1);
    REQUIRE(masked_MF.equal(shown_MF.to(torch::kFloat)));
    widths.insert(count(frames_F));
    heights.insert(count(bins_M));
    places_F |= frames_F;
    places_M |= bins_M;
  }
  CHECK(widths == std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(heights == std::set<std::int64_t>{0, 1, 2, 3});
  CHECK(places_F.all().item<bool>());
  CHECK(places_M.all().item<bool>());
  CHECK(ones_MF.eq(1).all().item<bool>());
}

TEST_CASE("a seed gives its masks again, another seed others") {
  torch::manual_seed(1);
  const SpecAugment augment;
  const at::Tensor mel_MF = torch::randn({80, 500});
  CHECK(augment(mel_MF, 5).equal(augment(mel_MF, 5)));
  CHECK_FALSE(augment(mel_MF, 5).equal(augment(mel_MF, 6)));
}

TEST_CASE("each clip of a batch has masks of its own, the first those that it gets alone") {
  torch::manual_seed(2);
  const SpecAugment augment;
  const at::Tensor mel_MF = torch::randn({80, 500}), mel_BMF = torch::stack({mel_MF, mel_MF});
  const at::Tensor masked_BMF = augment(mel_BMF, 7);
  CHECK(masked_BMF[0].equal(augment(mel_MF, 7)));
  CHECK_FALSE(masked_BMF[0].equal(masked_BMF[1]));
}

TEST_CASE("masked cells hold the clip's mean unless a value is given") {
  torch::manual_seed(3);
  const at::Tensor mel_MF = torch::randn({20, 100}, torch::kDouble) + 5;
  const at::Tensor masked_MF = SpecAugment({.max_frames = 50, .max_bins = 10})(mel_MF, 11);
  const at::Tensor changed = masked_MF.index({masked_MF.ne(mel_MF)});
  REQUIRE(changed.numel() > 0);
  CHECK((changed - mel_MF.mean()).abs().max().item<double>() < 1e-5);
}

TEST_CASE("the number of masks and the share of time are kept to") {
  const at::Tensor ones_MF = torch::ones({40, 100});
  const SpecAugment many({.time_masks = 3, .max_frames = 10, .mel_masks = 0, .fill = 0});
  const SpecAugment little({.max_frames = 100, .mel_masks = 0, .max_time_share = 0.05, .fill = 0});
  const SpecAugment none({.time_masks = 0, .mel_masks = 0});
  std::int64_t most_runs = 0, widest = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    most_runs = std::max(most_runs, runs(hidden(many(ones_MF, seed), 1)));
    widest = std::max(widest, count(hidden(little(ones_MF, seed), 1)));
    REQUIRE(none(ones_MF, seed).equal(ones_MF));
  }
  CHECK(most_runs == 3);
  CHECK(widest == 5);
}

TEST_CASE("masks wider than a clip and empty clips do no harm") {
  const SpecAugment augment({.max_frames = 1000, .max_bins = 1000, .fill = 0});
  for (std::uint64_t seed = 0; seed < 50; ++seed) CHECK(augment(torch::ones({2, 3}), seed).numel() == 6);
  CHECK(augment(torch::ones({0, 80, 100}), 1).sizes() == at::IntArrayRef{0, 80, 100});
  CHECK(augment(torch::ones({80, 0}), 1).sizes() == at::IntArrayRef{80, 0});
}

TEST_CASE("wrong options and spectrograms of SpecAugment are refused with their values") {
  CHECK_THROWS_WITH(SpecAugment({.max_bins = -1}),
                    "SpecAugment: 1 masks of 70 frames and 1 of -1 mel bins; none may be negative");
  CHECK_THROWS_WITH(SpecAugment({.max_time_share = 1.5}),
                    "SpecAugment: a mask cannot hide a share of 1.5 of a clip's frames");
  CHECK_THROWS_WITH(SpecAugment()(torch::zeros({5}), 0),
                    "SpecAugment: expected a floating-point [M, F] or [B, M, F], got CPUFloatType [5]");
  CHECK_THROWS_AS(SpecAugment()(torch::zeros({5, 5}, torch::kLong), 0), UsageError);
  CHECK_THROWS_AS(SpecAugment()(torch::zeros({5, 5}).to(at::kFloat8_e5m2), 0), UsageError);
  CHECK(SpecAugment()(torch::zeros({5, 5}, at::kBFloat16), 0).scalar_type() == at::kBFloat16);
  CHECK_THROWS_AS(SpecAugment()(at::Tensor(), 0), UsageError);
}
