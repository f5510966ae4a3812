// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/evaluation.hpp>

#include <string>
#include <vector>

using whisper::choose_normalizer;
using whisper::word_error_rate;

TEST_CASE("The normaliser is Whisper's for English and keeps combining marks for other languages") {
  CHECK(choose_normalizer("auto", "en").name == "english");
  CHECK(choose_normalizer("auto", "mr").name == "marks");
  for (const auto* code : {"zh", "yue", "ja", "th", "lo", "my"})
    CHECK(choose_normalizer("auto", code).name == "characters");
  CHECK(choose_normalizer("auto", "ko").name == "marks");
  CHECK(choose_normalizer("marks", "en").name == "marks");
  CHECK(choose_normalizer("english", "mr").name == "english");
  CHECK_THROWS_AS(choose_normalizer("basic", "en"), looptorch::app::CommandLineError);
  CHECK_THROWS_WITH(choose_normalizer("basic", "en"),
                    "--normalizer: \"basic\" is not auto, english, marks, characters or none");
}

TEST_CASE("Each normaliser forgives what it should, and no more") {
  const auto rate = [](const std::string& name, const std::string& reference, const std::string& heard) {
    return word_error_rate({reference}, {heard}, choose_normalizer(name, "en"));
  };
  CHECK(rate("english", "Heading two one zero, sir.", "heading 210 sir") == 0);
  CHECK(rate("marks", "Heading two one zero, sir.", "heading 210 sir") == 0.6);
  CHECK(rate("marks", "Heading, SIR.", "heading sir") == 0);
  CHECK(rate("none", "Heading, SIR.", "heading sir") == 1);
  CHECK(rate("characters", "今日は いい天気。", "今日はいい元気") == Approx(1.0 / 7));
  CHECK(rate("marks", "今日はいい天気", "今日はいい元気") == 1);
  CHECK(rate("characters", "ที่นี่ดี", "ที่นี่ดิ") == Approx(1.0 / 3));  // a vowel sign belongs to its letter
  CHECK(rate("characters", "Ab, c", "abc") == 0);
  CHECK(rate("marks", "कोंकणी भास", "कोंकणी भास।") == 0);
  CHECK(rate("marks", "कोंकणी भास", "कोंकणी भसि") == 0.5);
}

TEST_CASE("What was heard before training is read again for the same clips and settings only") {
  const looptorch::testing::TemporaryFolder folder;
  const auto tokenizer =
      whisper::load_tokenizer(LOOPTORCH_SOURCE_DIR "/tests/parity/data/small_tokenizer.json");
  const auto clips = [&](const std::string& file, const std::string& text) {
    return whisper::SpeechDataset(
        {{.audio_filepath = file, .text = "turn left"}, {.audio_filepath = "b", .text = text}}, tokenizer,
        {.prompt = {296}, .suppress = {}, .begin_suppress = {}, .end_of_text = 295}, {.max_seconds = 2});
  };
  const auto normalizer = choose_normalizer("none", "en");
  const auto speech = clips("a\xff", "climb");
  const whisper::TranscriptsKey key{"model", "en", 5};
  const auto file = folder / "before.json";
  const auto known = [&](const whisper::TranscriptsKey& wanted, const whisper::SpeechDataset& of) {
    return whisper::load_transcripts(file, wanted, of, normalizer);
  };
  CHECK_FALSE(known(key, speech));
  whisper::save_transcripts(file, key, speech, {{"turn left", "climb"}, {"turn", "climb"}, 1.0 / 3});
  const auto transcripts = known(key, speech);
  REQUIRE(transcripts);
  CHECK(transcripts->references == std::vector<std::string>{"turn left", "climb"});
  CHECK(transcripts->hypotheses == std::vector<std::string>{"turn", "climb"});
  CHECK(transcripts->word_error_rate == 1.0 / 3);
  CHECK_FALSE(known({"other", "en", 5}, speech));
  CHECK_FALSE(known({"model", "mr", 5}, speech));
  CHECK_FALSE(known({"model", "en", 5.5}, speech));
  CHECK_FALSE(known(key, clips("c", "climb")));
  CHECK_FALSE(known(key, clips("a\xff", "descend")));
  looptorch::write_file_atomically(file, "{\"model\": ");
  CHECK_FALSE(known(key, speech));
}
