// SPDX-License-Identifier: MIT
// Tests konkanivani/clips: clip_frames
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>

#include "../support.hpp"
#include "../tone_corpus.hpp"
#include "support/temporary_folder.hpp"

#include <konkanivani/clips/speech_dataset.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

using namespace konkanivani_test;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;
using konkanivani::SpeechDataset;
using konkanivani::SpeechError;
using looptorch::testing::TemporaryFolder;
namespace lt = looptorch;

namespace {

std::string why_refused(Corpus& corpus, konkanivani::SpeechOptions options = {}) {
  try {
    const auto dataset = corpus.dataset(options);
    for (int64_t i = 0; i < dataset.size(); ++i) (void)dataset.get(i, {});
  } catch (const SpeechError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("A clip is its log-mel frames, one for each 10 ms begun, and its ids") {
  Corpus corpus({{16000, "कख, ग!"}, {15841, "घ"}, {15840, "घ"}});
  const auto dataset = corpus.dataset();
  CHECK(dataset.size() == 3);
  const auto clip = dataset.get(0, {});
  CHECK(clip.mel_MF.sizes() == at::IntArrayRef({80, 100}));
  CHECK(clip.text == "कख ग");
  CHECK(clip.ids == std::vector<int64_t>{6, 7, 5, 8});
  CHECK(dataset.get(1, {}).mel_MF.size(1) == 100);
  CHECK(dataset.get(2, {}).mel_MF.size(1) == 99);
  const auto samples_T = lt::audio::decode(corpus.utterances[0].audio_filepath).samples_T;
  const auto whole = lt::audio::LogMel({.max_samples = 16000})(samples_T * (0.5 / samples_T.abs().max()));
  CHECK(largest_difference(clip.mel_MF.narrow(1, 0, 97), whole.narrow(1, 0, 97)) < 1e-5);
  CHECK(dataset.lengths() == std::vector<int64_t>{128, 128, 128});  // as batches are padded
}

// In the first project masks were applied before the logarithm.

TEST_CASE("Masks hide log-mel frames: what is hidden holds the clip's mean, the rest stays") {
  Corpus corpus({{32000, "क"}});
  auto plain = corpus.dataset(), masked = corpus.dataset();
  masked.augment({.speeds = {1.0}, .masks = {.max_frames = 70, .max_bins = 27, .max_time_share = 0.2}});
  const auto mel = plain.get(0, {}).mel_MF;
  std::set<int64_t> hidden_counts;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto got = masked.get(0, {.seed = seed}).mel_MF;
    const auto differs = got.ne(mel);
    hidden_counts.insert(differs.sum().item<int64_t>());
    const auto hidden = got.masked_select(differs);
    if (hidden.numel() > 0) CHECK((hidden - mel.mean()).abs().max().item<double>() < 1e-5);
    CHECK(differs.all(0).sum().item<int64_t>() <= 40);  // a fifth of the frames
    CHECK(differs.all(1).sum().item<int64_t>() <= 27);
  }
  CHECK(hidden_counts.size() > 6);
}

TEST_CASE("Training plays clips at other speeds; a seed fixes the frames") {
  Corpus corpus({{16000, "क"}});
  auto dataset = corpus.dataset();
  dataset.augment({});
  std::set<int64_t> frames;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto once = dataset.get(0, {.seed = seed}), again = dataset.get(0, {.seed = seed});
    CHECK(once.mel_MF.equal(again.mel_MF));
    frames.insert(once.mel_MF.size(1));
  }
  CHECK(frames == std::set<int64_t>{91, 100, 112});
  CHECK(dataset.get(0, {}).mel_MF.size(1) == 112);  // as a preflight reads it: at its longest
  CHECK_THROWS_WITH(dataset.augment({.speeds = {1.0, 0.0}}), "ClipFrames: speed 0 is not between 0.1 and 10");
}

TEST_CASE("No batch has more frames than allowed, at any speed") {
  Corpus corpus({{15840, "क"}, {12000, "ख"}, {15000, "ग"}, {12160, "घ"}, {14560, "क"}, {13440, "ख"}});
  auto dataset = corpus.dataset();
  dataset.augment({});
  const int64_t most = 256;
  const auto plan = dataset.by_length({.frames = most}).batches(/*epoch=*/0, dataset.size());
  CHECK(plan.size() == 3);
  for (int64_t batch = 0; batch < plan.size(); ++batch)
    for (uint64_t seed = 0; seed < 3; ++seed) {
      std::vector<konkanivani::Clip> clips;
      for (const int64_t index : plan.batch(batch)) clips.push_back(dataset.get(index, {.seed = seed}));
      const auto mel_BMF = dataset.collate(clips).mel_BMF;
      CHECK(mel_BMF.size(0) * mel_BMF.size(2) <= most);
    }
}

TEST_CASE("A cache changes no frames of training, and is read instead of the files") {
  const looptorch::detail::SingleIntraOpThread one_thread;  // as in a loader's worker
  const TemporaryFolder kept;
  Corpus corpus({{16000, "क"}, {12000, "ख"}});
  corpus.utterances.push_back(corpus.utterances[0]);  // a part of the same file
  corpus.utterances.back().start = 0.25;
  corpus.utterances.back().end = 0.75;
  const auto frames_of = [&](const konkanivani::SpeechOptions& options) {
    auto dataset = corpus.dataset(options);
    dataset.augment({});
    std::vector<at::Tensor> mels;
    for (int64_t clip = 0; clip < 3; ++clip)
      for (uint64_t seed = 0; seed < 6; ++seed) mels.push_back(dataset.get(clip, {.seed = seed}).mel_MF);
    return mels;
  };
  const auto equal = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
  };
  const konkanivani::SpeechOptions caching{.cache = kept.path()};
  const auto plain = frames_of({});
  CHECK(equal(frames_of(caching), plain));  // fills it
  CHECK(equal(frames_of(caching), plain));

  // The corpus elsewhere, with other times: nothing is added to the cache.
  const auto bytes_kept = [&] {
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kept.path())) bytes += entry.file_size();
    return bytes;
  };
  const auto bytes = bytes_kept();
  const auto originals = corpus.utterances;
  for (auto& utterance : corpus.utterances) {
    const auto moved = corpus.folder / ("moved_" + utterance.audio_filepath.filename().string());
    std::filesystem::copy_file(utterance.audio_filepath, moved,
                               std::filesystem::copy_options::overwrite_existing);
    utterance.audio_filepath = moved;
  }
  CHECK(equal(frames_of(caching), plain));
  CHECK(bytes_kept() == bytes);
  CHECK(equal(frames_of({.mel_bins = 40, .cache = kept.path()}), frames_of({.mel_bins = 40})));
  CHECK(bytes_kept() > bytes);  // other settings
  CHECK(equal(frames_of(caching), plain));

  // Silence under an old name, of the old size and time, is other sound.
  for (const auto& utterance : originals) {
    const auto time = std::filesystem::last_write_time(utterance.audio_filepath);
    const auto samples = lt::audio::decode(utterance.audio_filepath).samples_T.size(0);
    lt::audio::encode(utterance.audio_filepath, {at::zeros({samples}), 16000});
    std::filesystem::last_write_time(utterance.audio_filepath, time);
  }
  CHECK(equal(frames_of(caching), plain));
  corpus.utterances = originals;
  CHECK_THROWS_WITH(frames_of(caching), Contains("is silent"));
}

TEST_CASE("A part of a file is read where the manifest says so, and other sample rates are resampled") {
  Corpus corpus({{16000, "क"}});
  corpus.utterances[0].start = 0.25;
  corpus.utterances[0].end = 0.75;
  CHECK(corpus.dataset().get(0, {}).mel_MF.size(1) == 50);
  const auto file = corpus.folder / "slow.wav";
  lt::audio::encode(file, {tone(8000), 8000});
  corpus.utterances[0] = {.audio_filepath = file, .text = "क"};
  CHECK(corpus.dataset().get(0, {}).mel_MF.size(1) == 100);
}

TEST_CASE("Characters outside the vocabulary are unknown, counted and listed") {
  Corpus corpus({{16000, "कz"}, {16000, "z"}});
  const auto dataset = corpus.dataset();
  CHECK(dataset.get(0, {}).ids == std::vector<int64_t>{6, 4});
  CHECK(corpus.unknown.describe() == "2 characters outside the vocabulary, read as unknown: z (2)");
}

TEST_CASE("What cannot be used is refused by its file") {
  const auto name = [](const Corpus& corpus) { return corpus.utterances[0].audio_filepath.string(); };
  Corpus empty({{16000, " ?! "}});
  CHECK(why_refused(empty) == name(empty) + ": its text \" ?! \" has no characters");
  Corpus long_one({{48000, "क"}});
  CHECK(why_refused(long_one, {.max_seconds = 2}) == name(long_one) + ": lasts 3 s, longer than 2 s");
  for (const std::optional<double> told : {std::optional<double>(), std::optional<double>(1)}) {
    long_one.utterances[0].duration = told;  // the header knows better
    CHECK(why_refused(long_one, {.max_seconds = 2}) == name(long_one) + ": lasts 3 s, longer than 2 s");
  }
  CHECK_THROWS_WITH(konkanivani::LogMelReader({.max_seconds = 2}).samples(long_one.utterances[0]),
                    name(long_one) + ": lasts 3 s, longer than 2 s");
  Corpus silent({{16000, "क"}});
  lt::audio::encode(silent.utterances[0].audio_filepath, {at::zeros({16000}), 16000});
  CHECK(why_refused(silent) == name(silent) + ": is silent");
  Corpus missing({{16000, "क"}});
  std::filesystem::remove(missing.utterances[0].audio_filepath);
  CHECK_THROWS_WITH(missing.dataset(), Contains(name(missing)));
  Corpus noise({{16000, "क"}});
  std::ofstream(noise.utterances[0].audio_filepath) << "no audio";
  CHECK_THROWS_WITH(noise.dataset(), StartsWith(name(noise) + ": not audio that libsndfile can read"));
  Corpus beyond({{16000, "क"}});
  beyond.utterances[0].start = 1.5;
  CHECK_THROWS_WITH(beyond.dataset(), name(beyond) + ": lasts 1 s, and the clip begins at 1.5 s");
}

TEST_CASE("What cannot be used is listed once and skipped, in every epoch") {
  Corpus corpus({{16000, "क"}, {16000, " ?! "}, {16000, "ख"}, {48000, "ग"}, {16000, "घ"}, {8000, "कक"}});
  const auto name = [&](size_t i) { return corpus.utterances[i].audio_filepath.string(); };
  lt::audio::encode(name(4), {at::zeros({16000}), 16000});  // silent, which no header tells
  std::filesystem::resize_file(name(5), 4000);              // cut off
  konkanivani::SkippedItems skipped;
  const SpeechDataset dataset(corpus.utterances, vocabulary(), {.max_seconds = 2}, corpus.unknown, &skipped);
  CHECK(skipped.describe({.at_most = 2}) ==
        "3 entries are skipped (--on-bad-audio stop ends the run instead):\n  " + name(1) +
            ": its text \" ?! \" has no characters\n  " + name(3) +
            ": lasts 3 s, longer than 2 s\n  and 1 more\n");
  CHECK(dataset.size() == 3);
  CHECK(dataset.by_length({.clips = 1}).batch_count(dataset.size()) == 3);  // none for what is left out

  lt::PinnedPrefetchLoader loader(dataset, {.workers = 2, .on_error = lt::OnError::skip},
                                  dataset.by_length({.clips = 2}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<int64_t> seen;
    for (const auto& batch : loader) seen.insert(batch.indices.begin(), batch.indices.end());
    CHECK(seen == std::set<int64_t>{0, 1});
  }
  CHECK(loader.skipped().count == 2);
  skipped.add(loader.skipped());
  CHECK(skipped.count() == 4);
  CHECK_THAT(skipped.describe(), Contains(name(4) + ": is silent") && Contains(name(5) + ": cut off"));
  CHECK_THAT(skipped.describe({.at_most = 1}), EndsWith("has no characters\n  and 3 more\n"));
  CHECK(konkanivani::SkippedItems().describe().empty());
}

TEST_CASE("A dataset of which nothing can be used is refused, and a missing file is as any other fault") {
  Corpus corpus({{16000, "क"}, {16000, "ख"}});
  const auto gone = corpus.utterances[1].audio_filepath;
  std::filesystem::remove(gone);
  konkanivani::SkippedItems skipped;
  const auto make = [&] {
    return SpeechDataset(corpus.utterances, vocabulary(), {}, corpus.unknown, &skipped);
  };
  CHECK(make().size() == 1);
  CHECK_THAT(skipped.describe(), Contains(gone.string()));
  corpus.utterances[0].text = "?";
  CHECK_THROWS_WITH(make(), StartsWith("none of 2 clips can be used; the first: "));
}

TEST_CASE("A clip lasts as long as its file, or the part that its line names, whatever duration that has") {
  Corpus corpus({{16000, "क"}, {16000, "क"}, {16000, "क"}, {16000, "क"}});
  for (auto& utterance : corpus.utterances) utterance.duration.reset();
  corpus.utterances[0].duration = 0.01;
  corpus.utterances[1].start = 0.125, corpus.utterances[1].end = 0.25;
  corpus.utterances[2].start = 0.5;
  corpus.utterances[3].end = 1.05;  // rounded
  const std::vector<double> seconds{1, 0.125, 0.5, 1};
  for (size_t i = 0; i < seconds.size(); ++i)
    CHECK(lt::audio::ClipLengths()(corpus.utterances[i]) == seconds[i]);
  CHECK(corpus.dataset().lengths() == std::vector<int64_t>{128, 32, 64, 128});
  CHECK(corpus.dataset().count_too_short() == 0);
}

TEST_CASE("A line that says more than its file holds is skipped") {
  Corpus corpus({{16000, "क"}, {16000, "क"}, {16000, "क"}});
  corpus.utterances[0].duration.reset();
  corpus.utterances[0].end = 9;
  corpus.utterances[1].duration = 12;
  konkanivani::SkippedItems skipped;
  const SpeechDataset dataset(corpus.utterances, vocabulary(), {}, corpus.unknown, &skipped);
  const auto name = [&](std::size_t i) { return corpus.utterances[i].audio_filepath.string(); };
  CHECK_THAT(skipped.describe(), Contains(name(0) + ": lasts 1 s, and the clip ends at 9 s") &&
                                     Contains(name(1) + ": lasts 1 s, and its line says that it lasts 12 s"));
  CHECK(skipped.count() == 2);
}

TEST_CASE("A batch holds as many frames as its budget allows, and a longer clip is alone") {
  Corpus corpus({{16000, "क"}, {16000, "क"}, {4800, "क"}, {4800, "क"}, {4800, "क"}, {48000, "क"}});
  const auto dataset = corpus.dataset();
  const auto sizes = [&](const konkanivani::BatchSize& size) {
    lt::PinnedPrefetchLoader loader(dataset, {}, dataset.by_length(size));
    std::multiset<int64_t> clips;
    for (const auto& batch : loader) {
      if (batch.mel_BMF.size(0) > 1) CHECK(batch.mel_BMF.size(0) * batch.mel_BMF.size(2) <= 256);
      clips.insert(batch.mel_BMF.size(0));
    }
    return clips;
  };
  CHECK(sizes({.frames = 256}) == std::multiset<int64_t>{1, 2, 3});
  CHECK(sizes({.frames = 256, .clips = 2}) == std::multiset<int64_t>{1, 1, 2, 2});
}

TEST_CASE("A clip's frames do not depend on the seconds that they are computed with") {
  const konkanivani::LogMelReader reader({.max_seconds = 4});
  const auto samples_T = tone(64000);
  const auto whole = lt::audio::LogMel({.max_samples = 80000});
  for (const int64_t count : {399, 15600, 15601, 16000, 31999, 64000}) {
    INFO(count);
    const auto part = samples_T.narrow(0, 0, count);
    const auto frames = reader.frames(part);
    CHECK(frames.size(1) == (count + 159) / 160);
    CHECK(largest_difference(frames, whole(part).narrow(1, 0, frames.size(1))) < 1e-6);
  }
}

// The tensors of a batch lie in the loader's slots: the second epoch makes none.

TEST_CASE("Clips too short for their text are counted before training") {
  Corpus corpus({{3200, "कखगघ"}, {3200, "कखगघकख"}, {3200, "ककक"}});
  CHECK(corpus.dataset({.subsampling = 4}).count_too_short() ==
        1);  // 5 encoder frames each; 4, 6 and 5 are needed
  CHECK(corpus.dataset({.subsampling = 2}).count_too_short() == 0);
  CHECK(corpus.dataset({.subsampling = 1}).count_too_short() == 0);
  auto faster = corpus.dataset({.subsampling = 4});
  faster.augment({.speeds = {1.3, 1.0}});
  CHECK(faster.count_too_short() == 2);  // 4 encoder frames at the faster speed
}

TEST_CASE("Batches of similar lengths come from a loader, each clip once, whatever the workers") {
  Corpus corpus({{16000, "क"}, {4000, "ख"}, {15000, "ग"}, {4200, "घ"}, {9000, "क"}, {8800, "ख"}});
  auto dataset = corpus.dataset();
  dataset.augment({});
  const auto frames_of = [&](int64_t workers) {
    std::vector<at::Tensor> mels;
    lt::PinnedPrefetchLoader loader(dataset, {.batch_size = 1, .workers = workers},
                                    lt::LengthBucketSampler(dataset.lengths(), {.batch_size = 2, .seed = 3}));
    for (auto& batch : loader) mels.push_back(batch.mel_BMF.clone());
    return mels;
  };
  const auto alone = frames_of(0), together = frames_of(3);
  REQUIRE(alone.size() == 3);
  REQUIRE(together.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(alone[i].equal(together[i]));
}

TEST_CASE("a clip's frames are the same however loud it is") {
  const TemporaryFolder folder;
  const konkanivani::LogMelReader reader({.max_seconds = 2});
  const auto frames = [&](double gain) {
    const auto file = folder / "clip.wav";
    lt::audio::encode(file, {tone(8000) * gain, 16000}, {.format = lt::audio::SampleFormat::float32});
    return reader.frames(reader.samples({.audio_filepath = file, .text = {}}));
  };
  const auto whole = frames(1);
  for (const double gain : {2.0, 0.1, 0.003}) CHECK(frames(gain).allclose(whole, 0, 1e-4));
}
