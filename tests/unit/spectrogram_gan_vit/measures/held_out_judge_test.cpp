// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/as_rank.hpp"
#include "support/captured_stderr.hpp"
#include "unit/spectrogram_gan_vit/songs.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/measures/held_out_judge.hpp>

#include <filesystem>

using namespace spectrogram_gan_test;

namespace {

/// Four clips, which are trained on and held out.
struct Validated {
  Songs made{{1, 1, 1, 1}};
  gan::Notes notes{};
  decltype(gan::cached_clips(made.songs, 16, made.folder / "cache", notes)) clips =
      gan::cached_clips(made.songs, 16, made.folder / "cache", notes);
  gan::TrainOptions options{};
  gan::SkippedItems skipped{};

  Validated() { options.output = made.folder.path(), options.training.workers = 0; }
  auto prepare(bool goes_on) {
    return gan::prepare_validation(clips, clips, 16, at::kCPU, goes_on, options, skipped);
  }
};

}  // namespace

TEST_CASE(
    "A judge is trained and computes features of the held-out clips, and a run that goes on has the same one") {
  Validated validated;
  const auto prepare = [&](bool goes_on) { return validated.prepare(goes_on); };
  const auto first = prepare(false);
  CHECK(std::filesystem::exists(validated.made.folder / "judge.safetensors"));
  CHECK_FALSE(first.judge->is_training());
  CHECK(first.held_out.features_ND.size(0) == 4);
  CHECK(first.held_out.conditions_N2[3][1].item<double>() == Approx(-1));
  validated.options.training.seed = 77;  // with which another would be trained
  const auto again = prepare(true);
  CHECK(again.judge->hidden->weight.equal(first.judge->hidden->weight));
  CHECK(torch::allclose(again.held_out.features_ND, first.held_out.features_ND, 1e-4, 1e-5));
  CHECK_FALSE(prepare(false).judge->hidden->weight.equal(first.judge->hidden->weight));
}

TEST_CASE("Each rank trains the judge, and rank 0 alone prints and saves it") {
  Validated validated;
  const auto printed_by = [&](int rank) {
    const looptorch::testing::AsRank as(rank, 2);
    const looptorch::testing::CapturedStderr printed;
    CHECK_FALSE(validated.prepare(false).judge.is_empty());
    return printed.text();
  };
  CHECK(printed_by(1).empty());
  CHECK_FALSE(std::filesystem::exists(validated.made.folder / "judge.safetensors"));
  CHECK_THAT(printed_by(0), Catch::Contains("epoch 8 done"));
  CHECK(std::filesystem::exists(validated.made.folder / "judge.safetensors"));
}

TEST_CASE("A run that does not validate has no judge, and one with too few held-out clips is refused") {
  const Songs made({1});
  const gan::Notes notes;
  const auto clips = gan::cached_clips(made.songs, 16, made.folder / "cache", notes);
  gan::TrainOptions options;
  options.output = made.folder.path();
  gan::SkippedItems skipped;
  CHECK_THROWS_WITH(gan::prepare_validation(clips, clips, 16, at::kCPU, false, options, skipped),
                    Catch::Contains("validation needs at least 2 clips, and there are 1"));
  options.validate_every = 0;
  const auto none = gan::prepare_validation(clips, clips, 16, at::kCPU, false, options, skipped);
  CHECK(none.judge.is_empty());
  CHECK_FALSE(none.held_out.features_ND.defined());
  CHECK_FALSE(std::filesystem::exists(made.folder / "judge.safetensors"));
}
