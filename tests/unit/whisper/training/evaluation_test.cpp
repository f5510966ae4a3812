// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>

#include "../random_recognizer.hpp"
#include "support/captured_stderr.hpp"

#include <whisper/training/evaluation.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <vector>

using whisper::Transcripts;

namespace {

/// Makes CPU tensors beyond so many bytes throw std::bad_alloc while it lives, as a full host's do.
class FullMemory final : public c10::Allocator {
 public:
  explicit FullMemory(std::int64_t most) : most_(most) { memory_.set_source(*this); }
  ~FullMemory() { memory_.set_source(former_); }
  FullMemory(const FullMemory&) = delete;
  FullMemory& operator=(const FullMemory&) = delete;

  c10::DataPtr allocate(std::size_t size) override {
    if (memory_.allocated_bytes() > most_) throw std::bad_alloc();
    return former_.allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return former_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  looptorch::HostMemory& memory_ = looptorch::HostMemory::counted();
  c10::Allocator& former_ = memory_.source();
  std::int64_t most_;
};

}  // namespace

TEST_CASE("Errors are counted over all clips and by language, each with its language's normaliser") {
  const Transcripts transcripts{{"Heading two one zero.", "Guten Tag, Herr Nachbar", "今日はいい天気"},
                                {"heading 210", "guten tag herr nachtbar", "今日はいい元気"},
                                {"en", "de", "ja"}};
  const auto rates = transcripts.error_rates("auto");
  CHECK(rates.by_language ==
        std::map<std::string, double>{{"de", 1.0 / 4}, {"en", 0}, {"ja", 1.0 / 7}});  // 2, 4 and 7 words
  CHECK(rates.all == 2.0 / 13);
  CHECK(transcripts.normalizers("auto") == "characters, english, marks");
  CHECK(transcripts.error_rates("marks").by_language.at("ja") == 1);
  CHECK(transcripts.normalizers("marks") == "marks");
}

TEST_CASE("Characters are counted with the blanks between words, by each clip's normaliser") {
  const whisper::Transcripts transcripts{
      .references = {"CQ de k1a", "73"}, .hypotheses = {"cq dek1b", "7 3"}, .languages = {"de", "de"}};
  CHECK(transcripts.character_error_rate("none") == Approx(5.0 / 11));   // C, Q, the blank, a; one too many
  CHECK(transcripts.character_error_rate("marks") == Approx(3.0 / 11));  // the blank, a; a blank too many
  CHECK(transcripts.character_error_rate("characters") == transcripts.character_error_rate("marks"));
}

TEST_CASE("A summary has the rates of languages where there are several") {
  looptorch::app::Summary one, two;
  whisper::set_error_rates(one, "wer_after", {0.5, {{"de", 0.5}}});
  whisper::set_error_rates(two, "wer_after", {0.5, {{"de", 0.25}, {"fr", 0.75}}});
  CHECK(looptorch::Json::parse(one.text()) == looptorch::Json::parse(R"({"wer_after": 0.5})"));
  CHECK(looptorch::Json::parse(two.text()) ==
        looptorch::Json::parse(R"({"wer_after": 0.5, "wer_after_de": 0.25, "wer_after_fr": 0.75})"));
}

TEST_CASE("Where memory runs out fewer clips are transcribed at once, and the texts stay") {
  auto recognizer = whisper_test::random_recognizer();
  std::vector<whisper::Sample> samples;
  for (int i = 0; i < 6; ++i)
    samples.push_back({.mel_MT = at::randn({80, 400}), .tokens = {296, 298, 5, 295}, .text = "a"});
  const auto batch = whisper::collate(samples, 295);
  auto& memory = looptorch::HostMemory::counted();
  const looptorch::MemoryCounter counter(at::kCPU);
  const auto transcribe = [&](std::int64_t& at_once) {
    std::vector<std::string> texts;
    for (const auto& transcript : whisper::transcribe_in_parts(recognizer, batch, at_once))
      texts.push_back(transcript.text);
    return texts;
  };
  std::int64_t all = 6, single = 1, fewer = 6;
  counter.reset_peak();
  const auto held = counter.read().allocated;
  const auto expected = transcribe(all);
  const auto needed = counter.read().peak - held;
  CHECK(all == 6);
  CHECK(transcribe(single) == expected);

  const looptorch::testing::CapturedStderr captured;
  memory.set_limit(memory.allocated_bytes() + 2 * needed / 3);
  const auto found = transcribe(fewer);
  memory.set_limit(looptorch::HostMemory::kNoLimit);
  CHECK(found == expected);
  CHECK(fewer == 3);
  CHECK(captured.text() == "memory ran out as 6 clips were transcribed at once; goes on with 3\n");
  memory.set_limit(memory.allocated_bytes() + needed / 100);
  CHECK_THROWS_AS(transcribe(fewer), c10::OutOfMemoryError);
  memory.set_limit(looptorch::HostMemory::kNoLimit);

  FullMemory full(memory.allocated_bytes() + 2 * needed / 3);
  std::int64_t again = 6;
  CHECK(transcribe(again) == expected);
  CHECK(again == 3);
}
