// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/training/transcripts_file.hpp>

#include <string>
#include <vector>

TEST_CASE("Transcripts from before training are read again for the same clips and settings only") {
  const looptorch::testing::TemporaryFolder folder;
  const auto tokenizer =
      whisper::load_tokenizer(LOOPTORCH_SOURCE_DIR "/tests/parity/data/small_tokenizer.json");
  const auto clips = [&](const std::string& file, const std::string& text,
                         const std::string& language = "en") {
    return whisper::SpeechDataset({{.audio_filepath = file, .text = "turn left", .language = language},
                                   {.audio_filepath = "b", .text = text, .language = "de"}},
                                  tokenizer,
                                  {.prompt = {296},
                                   .suppress = {},
                                   .begin_suppress = {},
                                   .end_of_text = 295,
                                   .special = {.start = 296, .no_timestamps = 298}},
                                  {.max_seconds = 2});
  };
  const auto speech = clips("a\xff", "climb");
  const whisper::TranscriptsKey key{"model", "en", 5};
  const auto file = folder / "before.json";
  const auto known = [&](const whisper::TranscriptsKey& wanted, const whisper::SpeechDataset& of) {
    return whisper::load_transcripts(file, wanted, of);
  };
  CHECK_FALSE(known(key, speech));
  whisper::save_transcripts(file, key, speech, {{"turn left", "climb"}, {"turn", "climb"}, {"en", "de"}});
  const auto transcripts = known(key, speech);
  REQUIRE(transcripts);
  CHECK(transcripts->references == std::vector<std::string>{"turn left", "climb"});
  CHECK(transcripts->hypotheses == std::vector<std::string>{"turn", "climb"});
  CHECK(transcripts->languages == std::vector<std::string>{"en", "de"});
  CHECK_FALSE(known({"other", "en", 5}, speech));
  CHECK_FALSE(known({"model", "mr", 5}, speech));
  CHECK_FALSE(known({"model", "en", 5.5}, speech));
  CHECK_FALSE(known(key, clips("c", "climb")));
  CHECK_FALSE(known(key, clips("a\xff", "descend")));
  CHECK_FALSE(known(key, clips("a\xff", "climb", "de")));
  const auto detected = known(key, clips("a\xff", "climb", ""));
  REQUIRE(detected);
  CHECK(detected->languages == std::vector<std::string>{"en", "de"});
  looptorch::write_file_atomically(file, "{\"model\": ");
  CHECK_FALSE(known(key, speech));
}
