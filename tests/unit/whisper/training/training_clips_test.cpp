// SPDX-License-Identifier: MIT
// Tests whisper/audio: clip_mels
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/training/training_clips.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using looptorch::SampleContext;
using looptorch::Utterance;
using looptorch::testing::TemporaryFolder;
using whisper::SpeechDataset, whisper::TrainingClips, whisper::TrainingDraws, whisper::WindowTexts;
using Ids = std::vector<std::int64_t>;

namespace {

constexpr int64_t kEnd = 295, kStart = 296, kPrevious = 290, kNoTimestamps = 298, kTime = 299;

const whisper::Tokenizer& tokenizer() {
  static const auto loaded =
      whisper::load_tokenizer(LOOPTORCH_SOURCE_DIR "/tests/parity/data/small_tokenizer.json");
  return loaded;
}

whisper::DecodingOptions decoding(int64_t max_length = 448) {
  whisper::DecodingOptions options{.prompt = {kStart, kNoTimestamps},
                                   .suppress = {},
                                   .begin_suppress = {},
                                   .end_of_text = kEnd,
                                   .max_length = max_length};
  options.special = {.start = kStart, .previous = kPrevious, .no_timestamps = kNoTimestamps};
  return options;
}

Ids ids(const std::string& text) { return whisper::transcript_tokens(tokenizer(), text); }

Ids joined(const std::vector<Ids>& parts) {
  Ids all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// A recording of 4 s with two windows of 2 s, and a clip that is none.
struct Talk {
  TemporaryFolder folder;
  std::filesystem::path file = folder / "talk.wav";
  WindowTexts texts;
  std::vector<Utterance> utterances;

  Talk() {
    const auto t = at::arange(4 * 16000, at::kFloat);
    looptorch::audio::encode(file, {(0.05 * t * (1 + t / 64000)).sin() * 0.5, 16000});
    const auto part = [&](const std::string& text, double start, double end) {
      return Utterance{.audio_filepath = file, .text = text, .start = start, .end = end};
    };
    utterances = whisper::pack_windows({part("turn", 0, 1), part("left", 1.2, 2), part("climb", 2, 3.5)},
                                       {.max_seconds = 2}, texts, [](const Utterance&) { return 1; });
    for (auto& each : utterances) each.duration = *each.end - *each.start;
    utterances.push_back({.audio_filepath = file, .text = "a", .duration = 4});
  }
  [[nodiscard]] SpeechDataset speech(int64_t max_length = 448,
                                     const std::filesystem::path& cache = {}) const {
    return {utterances, tokenizer(), decoding(max_length), {.max_seconds = 5}, cache};
  }
};

/// 400 draws of a clip.
std::vector<whisper::Sample> draws(const TrainingClips& clips, int64_t index) {
  std::vector<whisper::Sample> samples;
  for (uint64_t seed = 0; seed < 400; ++seed)
    samples.push_back(clips.get(index, {.seed = looptorch::derive_seed(1, seed)}));
  return samples;
}

/// The share of `samples` for which `holds` is true.
template <class Holds>
double share_of(const std::vector<whisper::Sample>& samples, Holds holds) {
  return static_cast<double>(std::ranges::count_if(samples, holds)) / static_cast<double>(samples.size());
}

}  // namespace

TEST_CASE("Targets have timestamps or previous text as often as asked for") {
  const Talk talk;
  const auto speech = talk.speech();
  const TrainingClips clips(speech, talk.texts, tokenizer(), decoding(),
                            {.timestamps_share = 0.5, .prompt_share = 0.25});
  const auto plain = joined({{kStart, kNoTimestamps}, ids("turn left"), {kEnd}});
  const auto timed =
      joined({{kStart, kTime}, ids("turn"), {kTime + 50, kTime + 60}, ids("left"), {kTime + 100, kEnd}});
  const auto first = draws(clips, 0), second = draws(clips, 1);
  CHECK(share_of(first, [&](const auto& sample) { return sample.tokens == timed; }) ==
        Approx(0.5).margin(0.08));
  CHECK(share_of(first, [&](const auto& sample) {
          return (sample.tokens == timed || sample.tokens == plain) && sample.given == 0;
        }) == 1);

  const auto before = joined({{kPrevious}, ids("turn left")});
  const auto prompted = [&](const whisper::Sample& sample) {
    return sample.given == std::ssize(before) &&
           std::equal(before.begin(), before.end(), sample.tokens.begin()) &&
           sample.tokens[before.size()] == kStart;
  };
  CHECK(share_of(second, prompted) == Approx(0.25).margin(0.07));
  CHECK(share_of(second, [&](const auto& sample) { return prompted(sample) || sample.given == 0; }) == 1);
  CHECK(share_of(draws(clips, 2), [&](const auto& sample) {
          return sample.tokens == joined({{kStart, kNoTimestamps}, ids("a"), {kEnd}}) && sample.given == 0;
        }) == 1);
  const SampleContext context{.seed = 5};
  CHECK(clips.get(1, context).tokens == clips.get(1, context).tokens);
}

TEST_CASE("Nothing of the previous text is learnt, and everything after it is") {
  std::vector<whisper::Sample> samples{
      {.mel_MT = at::zeros({2, 3}),
       .tokens = {kPrevious, 7, 8, kStart, kTime, 5, kTime + 9, kEnd},
       .text = "t",
       .given = 3},
      {.mel_MT = at::zeros({2, 3}), .tokens = {kStart, kTime, kEnd}, .text = "t"}};
  const auto batch = whisper::collate(samples, kEnd);
  const auto no = whisper::kIgnored;
  CHECK(at::equal(batch.labels_BL, torch::tensor({{no, no, no, kTime, int64_t{5}, kTime + 9, kEnd},
                                                  {kTime, kEnd, no, no, no, no, no}})));
  CHECK(at::equal(batch.tokens_BL[0],
                  torch::tensor({kPrevious, int64_t{7}, int64_t{8}, kStart, kTime, int64_t{5}, kTime + 9})));
  CHECK(batch.label_count == 6);
  CHECK(batch.label_count == (batch.labels_BL != no).sum().item<int64_t>());
}

TEST_CASE(
    "Targets fit into the model's positions: previous text is cut at its beginning, timestamps skipped") {
  const Talk talk;
  const auto length = [](const std::string& text) { return std::ssize(ids(text)) + 3; };
  const auto tight = length("turn left");
  REQUIRE(tight > length("climb") + 2);  // room for the token of previous text and some of it
  const auto speech = talk.speech(tight);
  const TrainingClips clips(speech, talk.texts, tokenizer(), decoding(tight),
                            {.timestamps_share = 1, .prompt_share = 1});
  for (int64_t index = 0; index < 2; ++index) {
    const auto sample = clips.get(index, {});
    CHECK(std::ssize(sample.tokens) <= tight);
    CHECK(clips.target_lengths()[static_cast<size_t>(index)] == std::ssize(sample.tokens));
  }
  CHECK(clips.get(0, {}).tokens[1] == kNoTimestamps);  // would be two tokens too many
  const auto second = clips.get(1, {});
  const auto before = ids("turn left");
  CHECK(second.tokens[0] == kPrevious);
  CHECK(second.tokens[static_cast<size_t>(second.given - 1)] == before.back());
  CHECK(second.given > 1);
  CHECK(second.given < std::ssize(before) + 1);
  const TrainingClips none(speech, talk.texts, tokenizer(), decoding(tight), {});
  CHECK(none.longest().target_lengths() == speech.target_lengths());
}

TEST_CASE("the hardest batch has the longest texts, and no other is as hard") {
  Talk talk;
  std::reverse(talk.utterances.begin(), talk.utterances.end());  // the shortest text is first
  const auto speech = talk.speech();
  const TrainingClips clips(speech, {}, tokenizer(), decoding(), {});
  const auto lengths = clips.target_lengths();
  const auto longest = std::max_element(lengths.begin(), lengths.end());
  REQUIRE(*longest > lengths.front());
  for (const std::int64_t size : {1, 2}) {
    const auto batches = whisper::hardest_batches(clips, size).of_at_most(size);
    REQUIRE(batches.size() == 1);
    CHECK(batches[0].tokens_BL.size(0) == size);
    CHECK(batches[0].tokens_BL.size(1) >= *longest - 1);
  }
}

TEST_CASE("SpecAugment hides parts of the clip, not of its padding, by the sample's seed alone") {
  const Talk talk;
  const auto speech = talk.speech();
  const TrainingClips plain(speech, talk.texts, tokenizer(), decoding(), {});
  const TrainingClips masked(speech, talk.texts, tokenizer(), decoding(),
                             {.masks = looptorch::audio::SpecAugmentOptions{
                                  .time_masks = 2, .max_frames = 40, .mel_masks = 1, .max_bins = 20}});
  const auto mel_MT = speech.get(0).mel_MT;
  CHECK(at::equal(plain.get(0, {.seed = 3}).mel_MT, mel_MT));
  const auto hidden = masked.get(0, {.seed = 3}).mel_MT;
  CHECK_FALSE(at::equal(hidden, mel_MT));
  CHECK(at::equal(hidden.slice(1, 200), mel_MT.slice(1, 200)));  // after the 2 s of the clip
  CHECK(at::equal(hidden, masked.get(0, {.seed = 3}).mel_MT));
  CHECK_FALSE(at::equal(hidden, masked.get(0, {.seed = 4}).mel_MT));
  CHECK(at::equal(speech.get(0).mel_MT, mel_MT));

  const auto epoch_of = [&](int64_t workers) {
    looptorch::PinnedPrefetchLoader loader(masked, {.batch_size = 3, .workers = workers, .seed = 1});
    loader.begin_epoch(1);
    at::Tensor all;
    for (const auto& batch : loader) all = batch.mel_BMT.clone();
    return all;
  };
  CHECK(at::equal(epoch_of(0), epoch_of(2)));
}

TEST_CASE("A cache gives the same frames, which are computed once, and masks are drawn above it") {
  const Talk talk;
  const TemporaryFolder cache;
  const auto speech = talk.speech(), cached = talk.speech(448, cache.path());
  cached.prepare(2);
  const TrainingDraws draws{.masks = looptorch::audio::SpecAugmentOptions{.max_frames = 40}};
  const TrainingClips drawn(speech, talk.texts, tokenizer(), decoding(), draws),
      drawn_cached(cached, talk.texts, tokenizer(), decoding(), draws);
  for (int64_t index = 0; index < 3; ++index) {
    const SampleContext context{.seed = 9};
    CHECK(at::equal(drawn_cached.get(index, context).mel_MT, drawn.get(index, context).mel_MT));
    CHECK(at::equal(cached.get(index).mel_MT, speech.get(index).mel_MT));
  }
  int64_t computed = -1;
  talk.speech(448, cache.path()).prepare(1, [&](const auto& progress) { computed = progress.added; });
  CHECK(computed == 0);
  std::filesystem::last_write_time(talk.file,
                                   std::filesystem::last_write_time(talk.file) + std::chrono::hours(1));
  talk.speech(448, cache.path()).prepare(1, [&](const auto& progress) { computed = progress.added; });
  CHECK(computed == 0);  // the same sound of another time
  std::fstream(talk.file, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put(1);
  talk.speech(448, cache.path()).prepare(1, [&](const auto& progress) { computed = progress.added; });
  CHECK(computed == 3);
}

TEST_CASE("A timed window that ends within a segment has its sound, and learns when it begins") {
  Talk talk;
  talk.utterances.clear();
  talk.texts = {};
  const auto part = [&](const std::string& text, double start, double end) {
    return Utterance{.audio_filepath = talk.file, .text = text, .start = start, .end = end};
  };
  talk.utterances =
      whisper::pack_windows({part("turn", 0, 1), part("left", 1.2, 1.6), part("climb", 1.7, 3.5)},
                            {.max_seconds = 2}, talk.texts, [](const Utterance&) { return 1; });
  REQUIRE(talk.utterances.size() == 2);
  for (auto& each : talk.utterances) each.duration = *each.end - *each.start;
  const auto longer = whisper::whole_sounds(talk.utterances, talk.texts, 2, [](const Utterance& each) {
    return std::min(4.0, *each.end) - *each.start;
  });
  const whisper::SpeechOptions options{.max_seconds = 2};
  const SpeechDataset speech(talk.utterances, tokenizer(), decoding(), options, {}, longer);
  const auto mel_of = [&](double start, double end) {
    return whisper::LogMelReader(options)(talk.file, start, end);
  };
  const TrainingClips timed(speech, talk.texts, tokenizer(), decoding(), {.timestamps_share = 1});
  const TrainingClips plain(speech, talk.texts, tokenizer(), decoding(), {});

  CHECK(speech.size() == 2);
  const auto cut = timed.get(0, {});
  CHECK(cut.tokens == joined({{kStart, kTime},
                              ids("turn"),
                              {kTime + 50, kTime + 60},
                              ids("left"),
                              {kTime + 80, kTime + 85, kEnd}}));
  CHECK(at::equal(cut.mel_MT, mel_of(0, 2)));
  CHECK(timed.target_lengths()[0] == std::ssize(cut.tokens));
  const auto without = plain.get(0, {});
  CHECK(without.tokens == joined({{kStart, kNoTimestamps}, ids("turn left"), {kEnd}}));
  CHECK(at::equal(without.mel_MT, mel_of(0, 1.6)));
  CHECK(at::equal(timed.get(1, {}).mel_MT, plain.get(1, {}).mel_MT));
  CHECK(timed.get(1, {}).tokens.back() == kEnd);

  const SpeechDataset whole_only(talk.utterances, tokenizer(), decoding(), options);  // as if its sound ended
  const TrainingClips ends(whole_only, talk.texts, tokenizer(), decoding(), {.timestamps_share = 1});
  CHECK(ends.get(0, {}).tokens ==
        joined({{kStart, kTime}, ids("turn"), {kTime + 50, kTime + 60}, ids("left"), {kTime + 80, kEnd}}));
  CHECK(at::equal(ends.get(0, {}).mel_MT, mel_of(0, 1.6)));

  const TemporaryFolder cache;
  const SpeechDataset cached(talk.utterances, tokenizer(), decoding(), options, cache.path(), longer);
  int64_t computed = -1;
  cached.prepare(1, [&](const auto& progress) { computed = progress.added; });
  CHECK(computed == 3);  // of two windows
  const TrainingClips timed_cached(cached, talk.texts, tokenizer(), decoding(), {.timestamps_share = 1});
  CHECK(at::equal(timed_cached.get(0, {}).mel_MT, cut.mel_MT));
}
