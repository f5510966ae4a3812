// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/captured_stderr.hpp"
#include "unit/konkanivani/tones.hpp"

#include <konkanivani/training/training_data.hpp>

#include <string>

using namespace konkanivani_test;
using Catch::Contains;
using konkanivani::TrainOptions;

namespace {

looptorch::ManifestSplit corpus(const Tones& tones) {
  return {.train = {tones.utterances[0], tones.utterances[1]},
          .validation = {tones.utterances[2]},
          .test = {tones.utterances[1]}};
}

}  // namespace

TEST_CASE("The vocabulary is that of the training texts, in code points or graphemes") {
  std::vector<looptorch::Utterance> train{{.text = "की"}, {.text = "क"}};
  TrainOptions options;
  CHECK(konkanivani::vocabulary_of(train, options).characters() == std::vector<std::string>{"क", "ी"});
  options.characters = "grapheme";
  CHECK(konkanivani::vocabulary_of(train, options).characters() == std::vector<std::string>{"क", "की"});
}

TEST_CASE("Each part has its clips, and what training texts do not have is reported") {
  const Tones tones;
  const TrainOptions options;
  const auto split = corpus(tones);
  const auto vocabulary = konkanivani::vocabulary_of({split.train[0]}, options);  // "क" alone
  const looptorch::testing::CapturedStderr printed;
  const auto data = konkanivani::load_training_data(split, vocabulary, options, nullptr);
  CHECK(data.train.size() == 2);
  CHECK(data.validation.size() == 1);
  CHECK(data.test.size() == 1);
  CHECK(data.test.utterance(0).audio_filepath == tones.utterances[1].audio_filepath);
  CHECK_THAT(printed.text(), Contains("ख") && Contains("ग"));
  CHECK_THAT(printed.text(), !Contains("too short"));
}

TEST_CASE("Training clips too short for their text are counted") {
  Tones tones;
  auto split = corpus(tones);
  split.train[0].text = std::string(400, 'a');
  TrainOptions options;
  const auto vocabulary = konkanivani::vocabulary_of(split.train, options);
  split.validation = split.test = {split.train[1]};
  const looptorch::testing::CapturedStderr printed;
  (void)konkanivani::load_training_data(split, vocabulary, options, nullptr);
  CHECK_THAT(printed.text(), Contains("1 training clips are too short for their text"));
}

TEST_CASE("Only training clips are hidden in parts, and only their texts are padded") {
  const Tones tones;
  TrainOptions options;
  options.spec_augment = true;
  options.text_multiple = 8;
  auto split = corpus(tones);
  split.validation = split.train;
  const auto vocabulary = konkanivani::vocabulary_of(split.train, options);
  const auto data = konkanivani::load_training_data(split, vocabulary, options, nullptr);
  const auto frames = [](const konkanivani::SpeechDataset& clips, std::uint64_t seed) {
    return clips.get(1, {.seed = seed}).mel_MF;
  };
  CHECK_FALSE(frames(data.train, 1).equal(frames(data.train, 2)));
  CHECK(frames(data.validation, 1).equal(frames(data.validation, 2)));
  const auto padded_to = [](const konkanivani::SpeechDataset& clips) {
    std::vector<konkanivani::Clip> batch{clips.get(0, {.seed = 1}), clips.get(1, {.seed = 1})};
    return clips.collate(batch).targets.characters_BL.size(1);
  };
  CHECK(padded_to(data.train) == 8);
  CHECK(padded_to(data.validation) == 2);
}

TEST_CASE("A clip that cannot be used is listed, or ends the loading") {
  const Tones tones;
  auto split = corpus(tones);
  const TrainOptions options;
  const auto vocabulary = konkanivani::vocabulary_of(split.train, options);
  split.train[1].text = " ?! ";
  konkanivani::SkippedItems skipped({.one = "item", .many = "items"});
  CHECK(konkanivani::load_training_data(split, vocabulary, options, &skipped).train.size() == 1);
  CHECK_THAT(skipped.describe(), Contains(split.train[1].audio_filepath.string()));
  CHECK_THROWS_WITH(konkanivani::load_training_data(split, vocabulary, options, nullptr),
                    Contains(split.train[1].audio_filepath.string()));
}
