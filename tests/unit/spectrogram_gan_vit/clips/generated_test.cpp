// SPDX-License-Identifier: MIT
// Tests spectrogram_gan_vit/clips: leakage
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/concat_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "support/temporary_folder.hpp"

#include <spectrogram_gan_vit/clips/generated.hpp>
#include <spectrogram_gan_vit/clips/leakage.hpp>

#include <fstream>
#include <limits>

using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using spectrogram_gan::Clip;
using spectrogram_gan::GeneratedClips;
using spectrogram_gan::GeneratedClipsError;
using spectrogram_gan::LeakageError;
namespace lt = looptorch;

namespace {

/// 16 mel bins, 44 frames.
constexpr spectrogram_gan::SpectrogramOptions kTiny{.mel_bins = 16, .seconds = 1};

at::Tensor noise(std::int64_t count, std::uint64_t seed, std::int64_t rows = 16, std::int64_t frames = 44) {
  torch::manual_seed(seed);
  return at::randn({count, 1, rows, frames});
}

/// A folder as gan_sample writes it, of files of so many clips, far from z-scored.
struct Samples {
  explicit Samples(const std::vector<std::int64_t>& files) {
    for (const auto count : files) add(3 + 2 * noise(count, 11 + total), at::full({count, 2}, 0.25));
    label(total);
  }

  void add(const at::Tensor& clips, const at::Tensor& conditions, const std::string& origin = "generated") {
    const auto name = lt::message("spectrograms-0000", number++, ".safetensors");
    lt::save_safetensors(folder / name, {{"spectrograms", clips}, {"conditions", conditions}},
                         {{"origin", origin}});
    total += static_cast<std::uint64_t>(clips.size(0));
  }
  void label(std::uint64_t count) const {
    std::ofstream labels(folder / "labels.csv");
    labels << "sample,valence,arousal\n";
    for (std::uint64_t i = 0; i < count; ++i) labels << i << ",0.25,0.25\n";
  }
  [[nodiscard]] std::string fault() const {
    try {
      const GeneratedClips clips(folder.path(), kTiny);
    } catch (const GeneratedClipsError& error) {
      const std::string what = error.what(), place = folder.path().string();
      return what.starts_with(place) ? what.substr(place.size()) : "does not begin with the folder: " + what;
    }
    return "none";
  }

  TemporaryFolder folder;
  int number = 0;
  std::uint64_t total = 0;
};

/// Clips in memory, as songs with the ids from `first` on.
struct Songs {
  Songs(std::int64_t first, const at::Tensor& spectrograms_N1MF, double seconds = 30) {
    for (const auto& spectrogram : spectrograms_N1MF.unbind())
      clips.push_back({.song_id = first++, .spectrogram_1MF = spectrogram, .scale = {}, .seconds = seconds});
  }

  [[nodiscard]] std::int64_t size() const { return std::ssize(clips); }
  [[nodiscard]] Clip get(std::int64_t index) const { return clips[static_cast<std::size_t>(index)]; }
  [[nodiscard]] spectrogram_gan::Batch collate(std::span<Clip> some) const {
    return spectrogram_gan::batch_of(some);
  }
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const {
    return lt::message(get(index).song_id, ".wav");
  }

  std::vector<Clip> clips;
};

/// Throws what require_no_leakage throws for these parts.
template <class... Training>
void check_parts(const Songs& validation, const Songs& test, const Training&... training) {
  spectrogram_gan::SkippedItems skipped;
  spectrogram_gan::require_no_leakage({.batch_size = 3, .workers = 2}, skipped, validation, test,
                                      training...);
}

}  // namespace

TEST_CASE(
    "A folder of samples is training clips with mean 0 and deviation 1, in order, and joins recorded ones") {
  const Samples samples({2, 3});
  const GeneratedClips generated(samples.folder.path(), kTiny);
  REQUIRE(generated.size() == 5);
  CHECK(generated.conditions().sizes() == at::IntArrayRef({5, 2}));
  const auto raw = 3 + 2 * noise(3, 13);
  for (std::int64_t row = 0; row < 3; ++row) {
    const auto clip = generated.get(2 + row);
    const auto wanted = (raw[row] - raw[row].mean()) / raw[row].std(/*unbiased=*/false);
    CHECK(clip.spectrogram_1MF.allclose(wanted, 1e-5, 1e-6));
    CHECK(clip.song_id == -3 - row);
    CHECK(clip.valence == 0.25);
    CHECK(generated.path(2 + row) == samples.folder / "spectrograms-00001.safetensors");
  }
  generated.get(0).spectrogram_1MF.fill_(7);
  CHECK(generated.get(0).spectrogram_1MF.abs().max().item<double>() < 6);

  const Songs recorded(1, noise(4, 1));
  lt::ConcatDataset training(recorded, generated);
  lt::PinnedPrefetchLoader loader(training, {.batch_size = 9});
  for (const auto& batch : loader) {
    REQUIRE(batch.spectrograms_B1MF.sizes() == at::IntArrayRef({9, 1, 16, 44}));
    CHECK(batch.spectrograms_B1MF[3].equal(recorded.get(3).spectrogram_1MF));
    CHECK(batch.spectrograms_B1MF[6].equal(generated.get(2).spectrogram_1MF));
    CHECK(batch.conditions_B2[6][0].item<double>() == 0.25);
  }
}

TEST_CASE("A folder that gan_sample has not written, not finished, or written for another size is refused") {
  CHECK(Samples({}).fault() == ": holds no spectrograms-*.safetensors, which gan_sample writes");
  CHECK_THROWS_WITH(GeneratedClips("nowhere"), "nowhere: No such file or directory");
  const Samples unfinished({2});
  std::filesystem::remove(unfinished.folder / "labels.csv");
  CHECK(unfinished.fault() == ": holds no labels.csv: gan_sample has not finished it");
  unfinished.label(3);
  CHECK(unfinished.fault() == ": labels.csv lists 3 clips, and the files hold 2");

  const auto fault = [](const at::Tensor& clips, const at::Tensor& conditions,
                        const std::string& origin = "generated") {
    Samples samples({});
    samples.add(clips, conditions, origin);
    samples.label(2);
    return samples.fault();
  };
  const auto conditions = at::zeros({2, 2});
  const std::string file = "/spectrograms-00000.safetensors: ";
  CHECK(fault(noise(2, 1), conditions) == "none");
  CHECK(fault(noise(2, 1), conditions, "recorded") ==
        file + "is not marked as generated; only what gan_sample writes is read");
  CHECK(fault(noise(2, 1, 32), conditions) ==
        file + "holds spectrograms of 32 mel bins and 44 frames; the recorded ones have 16 and 44");
  CHECK(fault(noise(2, 1)[0], conditions) ==
        file + "spectrograms is Float [1, 16, 44]; it must be Float [N, 1, M, F]");
  CHECK(fault(noise(2, 1), at::zeros({1, 2})) ==
        file + "conditions is Float [1, 2] for 2 spectrograms; it must be Float [N, 2]");
  CHECK(fault(noise(2, 1), at::full({2, 2}, 1.5)) == file + "some emotions are outside [-1, 1]");
  CHECK(fault(noise(2, 1), at::full({2, 2}, std::nan(""))) == file + "some emotions are outside [-1, 1]");

  Samples damaged({});
  damaged.add(at::full({1, 1, 16, 44}, std::numeric_limits<float>::infinity()), at::zeros({1, 2}));
  damaged.label(1);
  CHECK_THROWS_WITH(
      GeneratedClips(damaged.folder.path(), kTiny).get(0),
      (damaged.folder / "spectrograms-00000.safetensors").string() + ": spectrogram 0 is not finite");
}

TEST_CASE(
    "Clips of one part that stand in another are refused: by id, by content, and nearly alike; both are named") {
  const Samples samples({3});
  const GeneratedClips generated(samples.folder.path(), kTiny);
  const Songs training(1, noise(8, 1)), validation(101, noise(4, 2)), test(201, noise(4, 3));
  CHECK_NOTHROW(check_parts(validation, test, training, generated));

  const Songs same_id(8, noise(1, 4));
  CHECK_THROWS_WITH(check_parts(validation, same_id, training),
                    "song 8 (8.wav), for testing, has the id of song 8 (8.wav), for training");
  CHECK_THROWS_AS(check_parts(validation, Songs(101, noise(1, 4)), training), LeakageError);

  // The same spectrogram under another id.
  const Songs copied(301, noise(8, 1).slice(0, 5, 6));
  CHECK_THROWS_WITH(check_parts(copied, test, training),
                    "song 301 (301.wav), for validation, is a copy of song 6 (6.wav), for training");
  CHECK_THROWS_WITH(check_parts(copied, copied, Songs(1, noise(8, 9))),
                    Contains("song 301") && Contains("for testing"));

  // A generated clip that was brought back as a song, a little noisy and through an equaliser.
  const auto drawn = generated.get(2).spectrogram_1MF.unsqueeze(0);
  const Songs smuggled(401, 0.5 * drawn + 0.1 * noise(1, 5) + at::linspace(2, -2, 16).view({1, 1, 16, 1}));
  CHECK_THROWS_WITH(check_parts(validation, smuggled, training, generated),
                    Contains("song 401 (401.wav), for testing, is nearly a copy (correlation 0.9") &&
                        Contains(") of generated clip 3 (" + generated.path(2).string() + "), for training"));
  CHECK_NOTHROW(check_parts(validation, Songs(402, drawn + 2 * noise(1, 6)), training, generated));
}

TEST_CASE("Padding makes no two clips alike, and clips that cannot be read are excluded from the search") {
  // 10 s of 30 sound; the rest is silence, as is most of what the two have in common.
  const auto padded = [](std::uint64_t seed) {
    auto clips = noise(1, seed, 16, 1292);
    clips.slice(3, 430).fill_(-4);
    return clips;
  };
  const Songs one(1, padded(1), 10), other(101, padded(2), 10), test(201, noise(1, 3, 16, 1292));
  CHECK_NOTHROW(check_parts(other, test, one));
  CHECK_THROWS_WITH(check_parts(Songs(101, padded(1) + 0.05 * noise(1, 4, 16, 1292), 10), test, one),
                    Contains("nearly a copy"));
  // Less than 7.5 s are known by their bits alone.
  CHECK_NOTHROW(
      check_parts(Songs(101, padded(1) + 0.05 * noise(1, 4, 16, 1292), 5), test, Songs(1, padded(1), 5)));
  CHECK_THROWS_AS(check_parts(Songs(101, padded(1), 5), test, Songs(1, padded(1), 5)), LeakageError);

  Samples damaged({1});
  damaged.add(at::full({1, 1, 16, 44}, std::nan("")), at::zeros({1, 2}));
  damaged.label(2);
  const GeneratedClips generated(damaged.folder.path(), kTiny);
  const Songs validation(101, noise(1, 21)), testing(201, noise(1, 22));
  spectrogram_gan::SkippedItems skipped;
  spectrogram_gan::require_no_leakage({.on_error = lt::OnError::skip}, skipped, validation, testing,
                                      generated);
  CHECK_THAT(skipped.describe(), Contains("1 song is skipped") && Contains("spectrogram 0 is not finite"));
  CHECK_THROWS_AS(check_parts(validation, testing, generated), lt::LoaderError);
}
