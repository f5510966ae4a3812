// SPDX-License-Identifier: MIT
// Spectrograms that np.save wrote, as training pictures. The arrays are written here: NumPy's own files are
// read by unit/data/npy_test.cpp.
// Tests spectrogram_gan_vit/clips: song_clips
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/audio/signals.hpp"

#include <spectrogram_gan_vit/clips/data.hpp>
#include <spectrogram_gan_vit/clips/dataset_folder.hpp>
#include <spectrogram_gan_vit/clips/song_clips.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
namespace sg = spectrogram_gan;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;

namespace {

constexpr sg::SpectrogramOptions kSmall{.mel_bins = 16, .seconds = 1};  // 44 frames

/// Writes a float32 array as np.save does.
void save_npy(const fs::path& file, const at::Tensor& array) {
  std::string shape;
  for (const auto size : array.sizes()) shape += std::to_string(size) + ", ";
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.resize(117, ' ');
  const auto values = array.to(at::kFloat).contiguous();
  std::ofstream out(file, std::ios::binary);
  out << "\x93NUMPY\x01" << '\0' << '\x76' << '\0' << text << '\n';
  out.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
}

at::Tensor decibels(std::int64_t frames, std::int64_t bins = 16) {
  torch::manual_seed(1);
  return at::randn({bins, frames}) * 12 - 30;
}

}  // namespace

TEST_CASE("A saved spectrogram is the picture of the sound that it was computed from") {
  const TemporaryFolder folder;
  const auto music_T = signals::as_samples(signals::music(22050, 22050));
  looptorch::audio::encode(folder / "1.wav", {music_T, 22050});
  const sg::ClipReader reader(kSmall);
  const auto from_sound = reader(folder / "1.wav");
  const looptorch::audio::MelSpectrogram mel(sg::mel_options(kSmall));
  const auto decibels_MF = from_sound.scale.to_decibels(from_sound.spectrogram_1MF[0]);
  for (const auto& array : {decibels_MF, decibels_MF * 0.23, from_sound.spectrogram_1MF}) {
    save_npy(folder / "1.npy", array);
    const auto saved = reader(folder / "1.npy");
    CHECK(saved.spectrogram_1MF.sizes() == from_sound.spectrogram_1MF.sizes());
    CHECK(at::allclose(saved.spectrogram_1MF, from_sound.spectrogram_1MF, 1e-4, 1e-4));
    CHECK(saved.seconds == Approx(1));
  }
  CHECK(reader(folder / "1.npy").scale.mean == Approx(sg::DecibelScale{}.mean));  // that was z-scored
  save_npy(folder / "1.npy", decibels_MF);
  CHECK(reader(folder / "1.npy").scale.mean == Approx(from_sound.scale.mean).epsilon(1e-4));
  CHECK(reader(folder / "1.npy").scale.deviation == Approx(from_sound.scale.deviation).epsilon(1e-4));
}

TEST_CASE("A saved spectrogram is cut to its first frames, or padded with its least value") {
  const TemporaryFolder folder;
  const auto long_MF = decibels(60);
  save_npy(folder / "1.npy", long_MF);
  const auto cut = sg::read_saved_spectrogram(folder / "1.npy", kSmall);
  CHECK(at::allclose(cut.spectrogram_1MF[0], sg::z_scored(long_MF.narrow(1, 0, 44)).first));
  save_npy(folder / "1.npy", long_MF.narrow(1, 0, 20).unsqueeze(0));
  const auto padded = sg::read_saved_spectrogram(folder / "1.npy", kSmall);
  CHECK(padded.spectrogram_1MF.sizes() == at::IntArrayRef{1, 16, 44});
  CHECK(padded.spectrogram_1MF[0].narrow(1, 20, 24).eq(padded.spectrogram_1MF.min()).all().item<bool>());
  CHECK(padded.seconds == Approx(20 * 512 / 22050.0));
}

TEST_CASE("Arrays that are no spectrograms of these sizes are refused with file and shape") {
  const TemporaryFolder folder;
  const auto refused = [&](const at::Tensor& array, const std::string& why) {
    save_npy(folder / "7.npy", array);
    CHECK_THROWS_WITH(sg::read_saved_spectrogram(folder / "7.npy", kSmall),
                      Contains((folder / "7.npy").string() + ": ") && Contains(why));
    CHECK_THROWS_AS(sg::read_saved_spectrogram(folder / "7.npy", kSmall), sg::ClipError);
  };
  refused(
      decibels(44, 12),
      "holds an array of shape [12, 44], which has 12 mel bins; 16 are asked for, by --n-mels or by the model");
  refused(decibels(16, 44),
          "holds an array of shape [44, 16], frames first; save its transpose: np.save(file, array.T)");
  refused(at::randn({3, 16, 44}),
          "shape [3, 16, 44]; a spectrogram is [16, frames] or [1, 16, frames], one a file");
  refused(at::randn({44}), "shape [44]");
  refused(at::empty({16, 0}), "shape [16, 0]");
  refused(at::ones({16, 44}), "holds the same number everywhere");
  refused(decibels(44) / 0, "holds numbers that are not finite");
  refused(decibels(44).sign() * 3e38, "whose differences are beyond fp32");
  std::ofstream(folder / "7.npy") << "no array";
  CHECK_THROWS_AS(sg::read_saved_spectrogram(folder / "7.npy", kSmall), looptorch::NpyError);
}

TEST_CASE("A folder of saved spectrograms with a table of emotions is a dataset") {
  for (const std::string place : {"", "spectrograms", "audio"}) {
    const TemporaryFolder folder;
    fs::create_directories(folder / place);
    save_npy(folder.path() / place / "2.npy", decibels(44));
    save_npy(folder.path() / place / "31.npy", decibels(44) + 1);
    std::ofstream(folder / "labels.csv") << "song_id,valence_mean,arousal_mean\n2,3,5\n31,9,1\n";
    const auto songs = sg::load_songs(folder.path());
    REQUIRE(songs.size() == 2);
    CHECK(songs[1].audio == (place.empty() ? folder.path() : folder / place) / "31.npy");
    CHECK(sg::describe_saved(songs) ==
          "2 songs are arrays of NumPy, taken as log-mel spectrograms of 20 to 8000 Hz, a frame each 512 "
          "samples at 22050 Hz");
    const auto clip = sg::SpectrogramDataset(songs, kSmall).get(0);
    CHECK(clip.spectrogram_1MF.sizes() == at::IntArrayRef{1, 16, 44});
    CHECK(clip.valence == -0.5);
  }
  CHECK(sg::describe_saved({}).empty());
}
