// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "support/captured_stderr.hpp"
#include "unit/spectrogram_gan_vit/songs.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/gan/output_folder.hpp>

#include <filesystem>

using namespace spectrogram_gan_test;
using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("The best step is that of the least distance, and none before the first") {
  looptorch::BestFew kept;
  CHECK_FALSE(gan::best_of(kept));
  kept.offer(3.5, 100, looptorch::Better::lower);
  kept.offer(2.5, 200, looptorch::Better::lower);
  kept.offer(4.5, 300, looptorch::Better::lower);
  const auto best = gan::best_of(kept);
  REQUIRE(best);
  CHECK(best->step == 200);
  CHECK(best->frechet == 2.5);
}

TEST_CASE("A run that begins anew removes what an earlier one measured, and nothing else") {
  const looptorch::testing::TemporaryFolder folder;
  fs::create_directory(folder / "best");
  for (const char* file :
       {"curve.csv", "judge.safetensors", "best/config.json", "config.json", "best/generator.safetensors"})
    looptorch::write_file_atomically(folder / file, "x");
  gan::TrainOptions options;
  options.output = folder.path();
  gan::begin_anew(options);
  for (const char* file : {"curve.csv", "judge.safetensors", "best/config.json"})
    CHECK_FALSE(fs::exists(folder / file));
  for (const char* file : {"config.json", "best/generator.safetensors"}) CHECK(fs::exists(folder / file));
  CHECK_NOTHROW(gan::begin_anew(options));  // nothing is left to remove
}

TEST_CASE("The model is saved with its loudness and labels; a best step without its snapshot is told") {
  const Songs made({1, 1});
  const gan::Notes notes;
  const auto clips = gan::cached_clips(made.songs, 16, made.folder / "cache", notes);
  auto model = tiny_gan();
  model->to(at::kFloat);
  gan::TrainOptions options;
  options.output = made.folder / "run";
  const auto labels_N2 = gan::labels_of(made.songs);
  gan::save_models(model, clips, labels_N2, {}, options, {});
  CHECK(gan::load_labels(options.output).equal(labels_N2));
  CHECK(gan::load_loudness(options.output / "loudness.json").mean ==
        Approx(gan::mean_scale(clips, 64, looptorch::OnError::fail).mean));
  const auto generator = gan::load_generator(options.output);
  for (const auto& item : generator->named_parameters()) {
    CAPTURE(item.key());
    CHECK(item.value().equal(model->generator->named_parameters()[item.key()]));
  }
  CHECK_FALSE(fs::exists(options.output / "best"));

  const looptorch::testing::CapturedStderr printed;
  gan::save_models(model, clips, labels_N2, gan::Best{.step = 12, .frechet = 1}, options, {});
  CHECK_FALSE(fs::exists(options.output / "best"));
  CHECK_THAT(printed.text(), Contains("the snapshot of the best step, 12, is gone") &&
                                 Contains((options.output / "best").string() + " is not written"));
}
