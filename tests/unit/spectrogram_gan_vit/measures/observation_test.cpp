// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "unit/spectrogram_gan_vit/songs.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/measures/observation.hpp>

#include <cstdint>
#include <vector>

using namespace spectrogram_gan_test;

namespace {

gan::Judges judges() {
  torch::manual_seed(9);
  gan::Judges both{gan::EmotionNet(16), gan::EmotionNet(16)};
  both.features->eval(), both.regressor->eval();
  return both;
}

}  // namespace

TEST_CASE("What is observed batch by batch is that of all clips, each by its own network") {
  auto both = judges();
  const auto clips_N1MF = at::randn({5, 1, 16, 40}), emotions_N2 = at::rand({5, 2}) * 2 - 1;
  gan::Observer observer(both);
  observer.add(clips_N1MF.slice(0, 0, 3), emotions_N2.slice(0, 0, 3));
  observer.add(clips_N1MF.slice(0, 3), emotions_N2.slice(0, 3));
  const auto seen = observer.observed();
  CHECK(torch::allclose(seen.features_ND, gan::predict(both.features, clips_N1MF).features_ND, 1e-4, 1e-5));
  CHECK(
      torch::allclose(seen.predicted_N2, gan::predict(both.regressor, clips_N1MF).conditions_N2, 1e-4, 1e-5));
  CHECK_FALSE(
      torch::allclose(seen.predicted_N2, gan::predict(both.features, clips_N1MF).conditions_N2, 1e-4, 1e-5));
  CHECK(seen.wanted_N2.equal(emotions_N2));
  CHECK(torch::allclose(seen.patches_NK, gan::patches_of(clips_N1MF)));
  const auto distances = gan::distances(seen, seen);
  CHECK(distances.frechet == Approx(0).margin(1e-3));
}

TEST_CASE("Shuffled clips have their own cells in another order") {
  torch::manual_seed(2);
  const auto clips_N1MF = at::randn({3, 1, 16, 40}), before = clips_N1MF.clone();
  const auto mixed = gan::shuffled(clips_N1MF);
  CHECK(clips_N1MF.equal(before));
  CHECK_FALSE(mixed.equal(clips_N1MF));
  CHECK(std::get<0>(mixed.flatten(1).sort(1)).equal(std::get<0>(clips_N1MF.flatten(1).sort(1))));
}

TEST_CASE("Drawn clips are those of all emotions, whatever the batches") {
  torch::manual_seed(3);
  gan::Generator generator(tiny_config());
  generator->eval();
  const auto emotions_N2 = at::rand({19, 2}) * 2 - 1;
  std::vector<at::Tensor> clips, emotions;
  gan::each_drawn(generator, emotions_N2, 7, [&](const at::Tensor& drawn, const at::Tensor& wanted) {
    clips.push_back(drawn), emotions.push_back(wanted);
  });
  CHECK(clips.size() == 2);
  CHECK(at::cat(emotions).equal(emotions_N2));
  CHECK(torch::allclose(at::cat(clips), gan::draw_samples(generator, 7, 0, emotions_N2), 1e-4, 1e-5));
}

TEST_CASE("Real clips are compared with those of the test, and so are noise and shuffled ones") {
  const Songs made({1, 1.5, 2, 1});
  const gan::Notes notes;
  const auto clips = gan::cached_clips(made.songs, 16, made.folder / "cache", notes);
  auto both = judges();
  gan::SkippedItems skipped;
  const looptorch::LoaderOptions loading{.batch_size = 3, .workers = 0};
  const auto found = gan::observe_reference(clips, clips, clips, both, loading, skipped);
  CHECK(found.test.features_ND.size(0) == 4);
  CHECK(found.test.wanted_N2[2][0].item<double>() == Approx(0.125 * 3));
  CHECK(found.train_patches_NK.equal(found.test.patches_NK));
  CHECK(found.validation.frechet == Approx(0).margin(1e-3));
  CHECK(found.noise.frechet > found.validation.frechet + 1e-3);
  CHECK(found.shuffled.frechet > found.validation.frechet + 1e-3);
  CHECK(skipped.count() == 0);
}

TEST_CASE("A clip that cannot be read is skipped and listed, where that is asked for") {
  const Songs made({1, 1, 1});
  const gan::Notes notes;
  const auto clips = gan::cached_clips(made.songs, 16, made.folder / "cache", notes);
  std::filesystem::resize_file(made.songs[1].audio, 100);
  auto both = judges();
  gan::SkippedItems skipped;
  const looptorch::LoaderOptions loading{.batch_size = 2, .workers = 0, .on_error = looptorch::OnError::skip};
  CHECK(gan::gather_patches(clips, loading, skipped).size(0) == 2);
  CHECK(skipped.count(gan::Fault::audio) == 1);
}
