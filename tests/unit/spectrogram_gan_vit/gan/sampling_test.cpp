// SPDX-License-Identifier: MIT
// What comes out of a trained generator: samples, pictures, sound; and the settings it was trained with.
// Tests spectrogram_gan_vit: presets
// Tests spectrogram_gan_vit/clips: labels, loudness
// Tests spectrogram_gan_vit/pictures: spectrogram_picture
#include "support/precompiled.hpp"

#include <looptorch/audio/mel_spectrogram.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "unit/spectrogram_gan_vit/support.hpp"

#include <spectrogram_gan_vit/clips/labels.hpp>
#include <spectrogram_gan_vit/clips/loudness.hpp>
#include <spectrogram_gan_vit/gan/sampling.hpp>
#include <spectrogram_gan_vit/pictures/spectrogram_picture.hpp>
#include <spectrogram_gan_vit/presets.hpp>

#include <fstream>
#include <limits>
#include <sstream>

using namespace spectrogram_gan_test;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using reference::difference;
namespace lt = looptorch;

namespace {

gan::Generator tiny_generator() {
  auto model = tiny_gan();
  model->to(at::kFloat);
  return model->generator;
}

/// Of 40 songs, on a diagonal from (-1, -0.5) to (1, 0.5).
at::Tensor labels() {
  const auto valence_N = at::linspace(-1, 1, 40);
  return at::stack({valence_N, valence_N / 2}, 1);
}

std::vector<int64_t> colour(const at::Tensor& picture, int64_t row, int64_t column) {
  const auto pixel = picture[row][column].to(at::kLong);
  return {pixel[0].item<int64_t>(), pixel[1].item<int64_t>(), pixel[2].item<int64_t>()};
}

}  // namespace

TEST_CASE("A picture has low pitches below, quiet dark, loud bright, and shows what is not finite") {
  auto spectrogram_MF = at::zeros({2, 3});
  spectrogram_MF[0][0] = -9;   // lowest pitch, first frame: far below the range
  spectrogram_MF[1][2] = 2.5;  // highest pitch, last frame
  spectrogram_MF[1][0] = std::numeric_limits<float>::quiet_NaN();
  spectrogram_MF[0][2] = std::numeric_limits<float>::infinity();
  const auto picture = gan::picture_of(spectrogram_MF, 2);
  CHECK(picture.sizes() == at::IntArrayRef({4, 3, 3}));
  CHECK(picture.scalar_type() == at::kByte);
  using Colour = std::vector<int64_t>;
  for (const int64_t row : {2, 3}) CHECK(colour(picture, row, 0) == Colour{0, 0, 4});
  for (const int64_t row : {0, 1}) CHECK(colour(picture, row, 2) == Colour{252, 253, 191});
  CHECK(colour(picture, 0, 0) == Colour{0, 255, 0});
  CHECK(colour(picture, 3, 2) == Colour{0, 255, 0});
  CHECK(colour(picture, 0, 1) == Colour{183, 55, 121});  // 0 is in the middle
  const auto ramp = gan::picture_of(at::linspace(-2.5, 2.5, 101).view({1, 101}), 1).to(at::kLong).sum(2);
  CHECK((ramp.narrow(1, 1, 100) >= ramp.narrow(1, 0, 100)).all().item<bool>());
  CHECK_THROWS_WITH(gan::picture_of(at::zeros({3})), Contains("got [3] and a zoom of 2"));
}

TEST_CASE("A sample depends on the seed and its number, not on how many are made at once") {
  auto generator = tiny_generator();
  generator->train();
  const auto conditions_B2 = gan::draw_conditions(labels(), 4, 0, 5);
  const auto all = gan::draw_samples(generator, 4, 0, conditions_B2);
  CHECK_FALSE(generator->is_training());
  CHECK(all.sizes() == at::IntArrayRef({5, 1, 16, 40}));
  CHECK_FALSE(all.requires_grad());
  CHECK(gan::draw_conditions(labels(), 4, 3, 2).equal(conditions_B2.narrow(0, 3, 2)));
  const auto some = gan::draw_samples(generator, 4, 3, conditions_B2.narrow(0, 3, 2));
  CHECK(difference(some, all.narrow(0, 3, 2)) < 1e-5);
  CHECK(difference(all[0], all[1]) > 1e-3);
  CHECK(difference(gan::draw_samples(generator, 5, 0, conditions_B2), all) > 1e-3);
}

TEST_CASE(
    "Conditions are those asked for; where none is they are drawn from the labels of the training songs") {
  const auto drawn_B2 = gan::draw_conditions(labels(), 1, 0, 400);
  CHECK((drawn_B2.unsqueeze(1) == labels()).all(2).any(1).all().item<bool>());
  const auto times_N = (drawn_B2.unsqueeze(1) == labels()).all(2).sum(0);
  CHECK(times_N.min().item<int64_t>() >= 1);
  CHECK(times_N.max().item<int64_t>() < 30);
  CHECK_FALSE(gan::draw_conditions(labels(), 2, 0, 64).equal(gan::draw_conditions(labels(), 1, 0, 64)));

  // One emotion given: the other is that of labels which have about this one.
  const auto pleasant_B2 = gan::draw_conditions(labels(), 1, 0, 64, {.valence = 0.75, .arousal = {}});
  CHECK((pleasant_B2.select(1, 0) == 0.75).all().item<bool>());
  CHECK((pleasant_B2.select(1, 1) - 0.375).abs().max().item<double>() < 0.06);
  CHECK(std::get<0>(at::unique_dim(pleasant_B2, 0)).size(0) == 4);  // a tenth of the labels
  const auto calm_B2 = gan::draw_conditions(labels(), 1, 0, 64, {.valence = {}, .arousal = -0.5});
  CHECK((calm_B2.select(1, 0) < -0.8).all().item<bool>());
  CHECK(gan::draw_conditions(labels(), 1, 0, 2, {.valence = -1, .arousal = 1})
            .equal(at::tensor({-1.0F, 1.0F, -1.0F, 1.0F}).view({2, 2})));
  CHECK(
      gan::draw_conditions(labels().narrow(0, 3, 1), 1, 0, 2).equal(labels().narrow(0, 3, 1).repeat({2, 1})));
}

TEST_CASE(
    "The training labels are kept with the model, and a model without them is refused with the remedy") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(gan::load_labels(folder.path()), gan::ConfigError);
  CHECK_THROWS_WITH(gan::load_labels(folder.path()), Contains((folder / "labels.safetensors").string()) &&
                                                         Contains("gan_train --resume auto"));
  const std::vector<gan::Song> songs{{.id = 1, .audio = "a", .valence = 0.25, .arousal = -1},
                                     {.id = 2, .audio = "b", .valence = 0.5, .arousal = 0.125}};
  gan::save_labels(folder.path(), gan::labels_of(songs));
  CHECK(gan::load_labels(folder.path()).equal(torch::tensor({{0.25F, -1.0F}, {0.5F, 0.125F}})));
  for (const auto& [wrong, text] : {std::pair{at::zeros({0, 2}), "Float [N, 2]"},
                                    {at::zeros({4, 3}), "[4, 3]"},
                                    {at::zeros({4, 2}, at::kDouble), "Double"},
                                    {at::full({4, 2}, 1.5), "outside [-1, 1]"},
                                    {at::full({1, 2}, std::nanf("")), "outside [-1, 1]"}}) {
    gan::save_labels(folder.path(), wrong);
    CHECK_THROWS_AS(gan::load_labels(folder.path()), gan::ConfigError);
    CHECK_THROWS_WITH(gan::load_labels(folder.path()), Contains(text));
  }
  lt::save_safetensors(folder / "labels.safetensors", {{"others", at::zeros({1, 2})}});
  CHECK_THROWS_WITH(gan::load_labels(folder.path()), Contains("holds no tensor \"labels\""));
}

TEST_CASE("A spectrogram becomes sound that has this spectrogram") {
  const auto time_T = at::arange(22050 * 2) / 22050.0;
  const auto samples_T = (0.4 * at::sin(time_T * 2764.6) + 0.2 * at::sin(time_T * 6911.5)).to(at::kFloat);
  const lt::audio::MelSpectrogram mel(gan::mel_options({.mel_bins = 64}));
  const auto decibels_MF = mel(samples_T);
  const gan::DecibelScale scale{.mean = decibels_MF.mean().item<double>(),
                                .deviation = decibels_MF.std().item<double>()};
  const auto z_MF = (decibels_MF - scale.mean) / scale.deviation;
  const auto sound_T = gan::sound_of(z_MF, scale, 1);
  CHECK(sound_T.abs().max().item<double>() == Approx(0.9));
  CHECK(std::abs(sound_T.size(0) - samples_T.size(0)) < 512);
  const auto again_MF = mel(sound_T);
  // The two tones are the loudest bins again, in the middle of the clip.
  const auto loudest = [](const at::Tensor& of_MF) {
    return std::get<1>(of_MF.select(1, of_MF.size(1) / 2).topk(1)).item<int64_t>();
  };
  CHECK(loudest(again_MF) == loudest(decibels_MF));
  const auto extreme = gan::sound_of(at::full({64, 40}, 1e6), scale, 1);
  CHECK(extreme.isfinite().all().item<bool>());
}

TEST_CASE("The loudness after the z-scores is kept with the model, and a wrong file refused by name") {
  const TemporaryFolder folder;
  const auto file = folder / "loudness.json";
  gan::save_loudness(file, {.mean = -31.5, .deviation = 12.25});
  const auto scale = gan::load_loudness(file);
  CHECK(scale.mean == -31.5);
  CHECK(scale.deviation == 12.25);
  for (const auto* text : {"{\"mean_db\": -30}", "{\"mean_db\": -30, \"deviation_db\": 0}",
                           "{\"mean_db\": \"loud\", \"deviation_db\": 1}"}) {
    lt::write_file_atomically(file, text);
    CHECK_THROWS_AS(gan::load_loudness(file), gan::ConfigError);
    CHECK_THROWS_WITH(gan::load_loudness(file), Contains(file.string()));
  }
  CHECK_THROWS_AS(gan::load_loudness(folder / "none.json"), lt::FileError);
}

TEST_CASE("Settings by the card's memory are those of the first project's table") {
  const auto row = [](int64_t gigabytes) {
    const auto& preset = gan::gpu_preset(gigabytes);
    return std::vector<int64_t>{preset.gan_batch_size, preset.vit_batch_size, preset.n_mels,
                                preset.synthetic};
  };
  CHECK(row(8) == std::vector<int64_t>{12, 6, 96, 1500});
  CHECK(row(12) == std::vector<int64_t>{16, 8, 128, 2000});
  CHECK(row(16) == std::vector<int64_t>{24, 12, 128, 3000});
  CHECK(row(24) == std::vector<int64_t>{48, 24, 128, 5000});
  CHECK(gan::kDefaultPreset.gigabytes == 16);
  // A size between two rows takes the lower one; beyond the last there is nothing larger.
  CHECK(row(11) == row(8));
  CHECK(row(23) == row(16));
  for (const int64_t gigabytes : {32, 40, 80}) CHECK(row(gigabytes) == row(24));
  CHECK_THROWS_WITH(gan::gpu_preset(6),
                    "--gpu-memory: the smallest card with settings has 8 GB, not 6: in its place give "
                    "--batch-size and --n-mels, and --preflight says before the run what fits");
  CHECK_THROWS_AS(gan::gpu_preset(7), looptorch::app::CommandLineError);
  // gan_sample: --count overrules the card's number.
  CHECK(gan::samples_to_draw(0, 10) == 1500);
  CHECK(gan::samples_to_draw(0, 80) == 5000);
  CHECK(gan::samples_to_draw(5, 80) == 5);
  CHECK(gan::samples_to_draw(0, 0) == 16);
  CHECK_THROWS_AS(gan::samples_to_draw(5, 7), looptorch::app::CommandLineError);
}
