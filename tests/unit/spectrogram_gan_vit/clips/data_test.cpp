// SPDX-License-Identifier: MIT
// The reference values: tests/parity/spectrogram_gan_data.py.
// Tests spectrogram_gan_vit/clips: picture, skipped_items, spectrogram
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "unit/spectrogram_gan_vit/songs.hpp"

#include <sndfile.h>
#include <spectrogram_gan_vit/clips/data.hpp>
#include <spectrogram_gan_vit/clips/dataset_folder.hpp>
#include <spectrogram_gan_vit/clips/skipped_items.hpp>
#include <spectrogram_gan_vit/sound/mel_inverse.hpp>

#include <fstream>

using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using spectrogram_gan::ClipError;
using spectrogram_gan::ClipReader;
using spectrogram_gan::Song;
using spectrogram_gan::SpectrogramDataset;
using namespace spectrogram_gan_test;
namespace lt = looptorch;

namespace {

/// Short clips for tests that need no 30 s.
constexpr spectrogram_gan::SpectrogramOptions kSmall{.mel_bins = 16, .seconds = 1};

/// Writes a stereo MP3, as music is published, unless this libsndfile cannot.
bool write_mp3(const std::filesystem::path& file, const at::Tensor& samples_T, int rate) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = 2;
  info.format = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;
  if (sf_format_check(&info) == 0) return false;
  auto* const sound = sf_open(file.c_str(), SFM_WRITE, &info);
  REQUIRE(sound != nullptr);
  const auto frames_T2 = at::stack({samples_T, samples_T}, 1).contiguous();
  CHECK(sf_writef_float(sound, frames_T2.const_data_ptr<float>(), frames_T2.size(0)) == frames_T2.size(0));
  return sf_close(sound) == 0;
}

at::Tensor kept(const at::Tensor& mel_MF) {
  return torch::cat({mel_MF.slice(1, 0, {}, 50), mel_MF.slice(1, 0, 3), mel_MF.slice(1, -3)}, 1);
}

}  // namespace

TEST_CASE("A song is librosa's z-scored mel spectrogram of its first 30 s, padded where it is shorter") {
  const Songs made({31, 20});
  const auto& recorded = reference::tensors("spectrogram_gan_data");
  const auto compare = [&](std::int64_t index, const std::string& name, std::int64_t bins, double seconds) {
    CAPTURE(name);
    const auto clip = SpectrogramDataset(made.songs, {.mel_bins = bins}).get(index);
    REQUIRE(clip.spectrogram_1MF.sizes() == at::IntArrayRef({1, bins, 1292}));
    CHECK(clip.spectrogram_1MF.is_cpu());
    const auto mel_MF = clip.spectrogram_1MF[0];
    CHECK(reference::difference(kept(mel_MF), recorded.at(name + ".frames")) < 1e-4);
    CHECK(reference::difference(mel_MF.to(torch::kDouble).sum(1), recorded.at(name + ".sums")) / 1292 < 1e-4);
    CHECK(clip.scale.mean == Approx(recorded.at(name + ".scale")[0].item<double>()).margin(1e-3));
    CHECK(clip.scale.deviation == Approx(recorded.at(name + ".scale")[1].item<double>()).margin(1e-3));
    CHECK(clip.seconds == seconds);
    CHECK(std::abs(mel_MF.mean().item<double>()) < 1e-5);
    CHECK(mel_MF.std(false).item<double>() == Approx(1).margin(1e-4));
  };
  compare(0, "long", 128, 30);
  compare(1, "short", 96, 20);
}

TEST_CASE("Another sample rate is resampled") {
  Songs made({2});
  made.add(music(2, 44100), 44100);
  const SpectrogramDataset dataset(made.songs, {.seconds = 2});
  const auto plain = dataset.get(0), resampled = dataset.get(1);
  CHECK(plain.spectrogram_1MF.sizes() == resampled.spectrogram_1MF.sizes());
  const auto agreement = (plain.spectrogram_1MF * resampled.spectrogram_1MF).mean().item<double>();
  CHECK(agreement > 0.95);  // of two pictures with deviation 1; the noise in them differs
}

TEST_CASE("A picture's scale gives its decibels back, as the library makes and inverts them") {
  const auto samples_T = music(1);
  const ClipReader reader(kSmall);
  const auto picture = reader(samples_T);
  const auto decibels_MF = lt::audio::MelSpectrogram(spectrogram_gan::mel_options(kSmall))(samples_T);
  CHECK(reference::difference(picture.scale.to_decibels(picture.spectrogram_1MF[0]), decibels_MF) < 1e-3);
  CHECK(spectrogram_gan::MelInverse(spectrogram_gan::mel_options(kSmall))(decibels_MF).size(0) == 1025);
  CHECK(kSmall.frames() == decibels_MF.size(1));
}

TEST_CASE("DEAM as published, an annotated folder of MP3 files at 44.1 kHz, is read without conversion") {
  const TemporaryFolder deam;
  std::filesystem::create_directory(deam / "audio");
  const auto sound_T = music(46, 44100);
  if (!write_mp3(deam / "audio/2.mp3", sound_T, 44100)) {
    WARN("skipped: this libsndfile writes no MP3");
    return;
  }
  std::ofstream(deam / "annotations.csv")
      << "song_id, valence_mean, valence_std, arousal_mean, arousal_std\n2,3.1,0.94,3,0.63\n";
  const SpectrogramDataset dataset(spectrogram_gan::load_songs(deam.path()));
  REQUIRE(dataset.size() == 1);
  const auto clip = dataset.get(0);
  CHECK(clip.valence == Approx(-0.475));
  CHECK(clip.seconds == 30);
  lt::audio::encode(deam / "plain.wav", {sound_T, 44100});
  const auto plain_1MF = ClipReader({})(deam / "plain.wav").spectrogram_1MF;
  REQUIRE(clip.spectrogram_1MF.sizes() == plain_1MF.sizes());
  CHECK((clip.spectrogram_1MF * plain_1MF).mean().item<double>() > 0.95);  // both have deviation 1
}

TEST_CASE("A batch is pictures and conditions, valence first, in host memory") {
  const Songs made({1, 1, 1});
  const SpectrogramDataset dataset(made.songs, kSmall);
  CHECK(dataset.size() == 3);
  lt::PinnedPrefetchLoader loader(dataset, {.batch_size = 2, .workers = 2});
  std::vector<spectrogram_gan::Batch> batches;
  for (auto& batch : loader) batches.push_back(batch);
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].spectrograms_B1MF.sizes() == at::IntArrayRef({2, 1, 16, 44}));
  CHECK(batches[1].spectrograms_B1MF.sizes() == at::IntArrayRef({1, 1, 16, 44}));
  CHECK(batches[0].spectrograms_B1MF[1].equal(dataset.get(1).spectrogram_1MF));
  CHECK(batches[0].conditions_B2.equal(torch::tensor({{0.125F, -0.25F}, {0.25F, -0.5F}})));
  CHECK(lt::is_on(batches[0], at::kCPU));
  CHECK(dataset.short_clips()->count() == 0);
  CHECK(dataset.short_clips()->describe().empty());
}

TEST_CASE("Clips that were padded are counted and listed once, through a cache too") {
  const Songs made({1, 0.5, 2, 0.25});
  const TemporaryFolder cache;
  for (int run = 0; run < 2; ++run) {
    const SpectrogramDataset dataset(made.songs, kSmall);
    const lt::CachedDataset cached(dataset, {.folder = cache.path(), .settings = dataset.settings()});
    lt::PinnedPrefetchLoader loader(cached, {.batch_size = 3, .workers = 2});
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : loader) CHECK(batch.spectrograms_B1MF.defined());
    }
    CHECK(cached.counts().computed == (run == 0 ? 4 : 0));
    const auto shorts = dataset.short_clips();
    CHECK(shorts->count() == 2);
    CHECK(shorts->describe() ==
          "2 clips are shorter than 1 s, padded with silence: song 2 (0.5 s), 4 (0.25 s)");
    CHECK(shorts->describe(1) == "2 clips are shorter than 1 s, padded with silence: song 2 (0.5 s) ...");
  }
  // What was padded is silence: its frames hold the clip's least value.
  const auto mel_MF = SpectrogramDataset(made.songs, kSmall).get(3).spectrogram_1MF[0];
  CHECK(mel_MF.slice(1, 20).eq(mel_MF.min()).all().item<bool>());
  CHECK_FALSE(mel_MF.slice(1, 0, 8).eq(mel_MF.min()).any().item<bool>());
}

TEST_CASE("A cache gives the same clips, and new ones for a file, label or setting that changed") {
  Songs made({1});
  const TemporaryFolder cache;
  const auto computed = [&](spectrogram_gan::SpectrogramOptions options = kSmall) {
    const SpectrogramDataset dataset(made.songs, options);
    const lt::CachedDataset cached(dataset, {.folder = cache.path(), .settings = dataset.settings()});
    const auto clip = cached.get(0), fresh = dataset.get(0);
    CHECK(clip.spectrogram_1MF.equal(fresh.spectrogram_1MF));
    CHECK(clip.valence == fresh.valence);
    CHECK(clip.arousal == fresh.arousal);
    CHECK(clip.song_id == fresh.song_id);
    CHECK(clip.scale.mean == fresh.scale.mean);
    CHECK(cached.path(0) == made.songs[0].audio);
    return cached.counts().computed;
  };
  CHECK(computed() == 1);
  CHECK(computed() == 0);
  const auto moved = made.folder / "moved.wav";  // as a cache that was uploaded with its songs
  std::filesystem::copy_file(made.songs[0].audio, moved);
  made.songs[0].audio = moved;
  CHECK(computed() == 0);
  made.songs[0].valence = std::nextafter(made.songs[0].valence, 1.0);
  CHECK(computed() == 1);
  CHECK(computed({.mel_bins = 8, .seconds = 1}) == 1);
  CHECK(computed({.mel_bins = 16, .seconds = 0.75}) == 1);
  lt::audio::encode(made.songs[0].audio, {music(0.9), kRate});
  CHECK(computed() == 1);
}

TEST_CASE(
    "The error for a file that cannot be used has its name and type, or the loader leaves it out if it may") {
  Songs made({1, 1, 1, 1});
  const auto file = [&](std::size_t i) { return made.songs[i].audio; };
  std::filesystem::resize_file(file(1), 20'000);
  std::ofstream(file(2), std::ios::trunc) << "this is no audio";
  lt::audio::encode(file(3), {torch::zeros({kRate}), kRate});
  const SpectrogramDataset dataset(made.songs, kSmall);
  CHECK_THROWS_AS(dataset.get(1), lt::audio::AudioError);
  CHECK_THROWS_WITH(dataset.get(1), Contains(file(1).string()) && Contains("cut off"));
  CHECK_THROWS_AS(dataset.get(2), lt::audio::AudioError);
  CHECK_THROWS_WITH(dataset.get(2), Contains(file(2).string()));
  CHECK_THROWS_AS(dataset.get(3), ClipError);
  CHECK_THROWS_WITH(dataset.get(3), file(3).string() + ": is silent");

  lt::PinnedPrefetchLoader strict(dataset, {.batch_size = 4, .workers = 1});
  try {
    for (auto& batch : strict) FAIL("a batch of " << batch.spectrograms_B1MF.size(0));
    FAIL("no error");
  } catch (const lt::LoaderError& error) {
    CHECK(error.path == file(1).string());
    CHECK_THROWS_AS(std::rethrow_if_nested(error), lt::audio::AudioError);
  }
  lt::PinnedPrefetchLoader tolerant(dataset, {.batch_size = 4, .workers = 1, .on_error = lt::OnError::skip});
  for (auto& batch : tolerant) CHECK(batch.spectrograms_B1MF.size(0) == 1);
  CHECK(tolerant.skipped().count == 3);
  CHECK(tolerant.skipped().first.at(2).path == file(3).string());

  spectrogram_gan::SkippedItems skipped;
  for (auto& batch : tolerant) CHECK(batch.spectrograms_B1MF.size(0) == 1);
  skipped.add(tolerant.skipped());  // two epochs of them
  CHECK(tolerant.skipped().count == 6);
  CHECK(skipped.count(spectrogram_gan::Fault::audio) == 3);
  CHECK_THAT(skipped.describe(), Contains("0 by a wrong line, 0 without audio, 3 whose audio"));
  CHECK_THAT(skipped.describe(), Contains("\n  " + file(3).string() + ": "));
}

TEST_CASE("Sizes that make no picture are refused") {
  CHECK_THROWS_WITH(ClipReader({.mel_bins = 0}), "spectrograms of 0 mel bins and 30 s cannot be made");
  CHECK_THROWS_AS(ClipReader({.seconds = 0}), lt::UsageError);
  CHECK_THROWS_AS(ClipReader({.seconds = std::nan("")}), lt::UsageError);
}

TEST_CASE("The scale for turning spectrograms into sound is the mean over clips") {
  Songs made({1});
  made.add(music(1) * 0.125);
  const SpectrogramDataset dataset(made.songs, kSmall);
  const auto mean = spectrogram_gan::mean_scale(dataset), first = spectrogram_gan::mean_scale(dataset, 1);
  CHECK(first.mean == dataset.get(0).scale.mean);
  CHECK(mean.mean == Approx((dataset.get(0).scale.mean + dataset.get(1).scale.mean) / 2));
  CHECK(mean.deviation == Approx((dataset.get(0).scale.deviation + dataset.get(1).scale.deviation) / 2));
  CHECK(mean.mean < first.mean - 8);

  made.add(torch::zeros({kRate}));
  const SpectrogramDataset damaged(made.songs, kSmall);
  CHECK_THROWS_AS(spectrogram_gan::mean_scale(damaged), ClipError);
  CHECK(spectrogram_gan::mean_scale(damaged, 64, lt::OnError::skip).mean == Approx(mean.mean));
  const SpectrogramDataset silent({made.songs[2]}, kSmall);
  CHECK_THROWS_AS(spectrogram_gan::mean_scale(silent, 64, lt::OnError::skip), ClipError);
}
