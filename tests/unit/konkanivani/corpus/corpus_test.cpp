// SPDX-License-Identifier: MIT
// Tests konkanivani/corpus: sentences, voices, words
// Tests konkanivani/corpus: patterns_market, patterns_meeting, patterns_time, patterns_travel
#include "support/precompiled.hpp"

#include <looptorch/app/process/process.hpp>
#include <looptorch/audio/decode.hpp>

#include "support/temporary_folder.hpp"

#include <konkanivani/corpus/sentences.hpp>
#include <konkanivani/corpus/speech_effects.hpp>
#include <konkanivani/corpus/voices.hpp>
#include <konkanivani/text/vocabulary.hpp>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using Catch::Contains;
using konkanivani::Dice;
using konkanivani::Grammar;
using konkanivani::GrammarError;

namespace {

std::vector<std::string> sentences(std::uint64_t seed, int count, std::int64_t min_words = 1,
                                   std::int64_t max_words = 99) {
  static const auto grammar = Grammar::konkani();
  konkanivani::Sentences source(grammar, seed, min_words, max_words);
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(source.next());
  return out;
}

/// Words of a pattern or a form that are no slots.
void add_words(const std::string& pattern, std::set<std::string>& words) {
  std::istringstream in(std::regex_replace(pattern, std::regex("\\{[a-z_0-9]*\\}"), " "));
  for (std::string word; in >> word;) words.insert(word);
}

/// All words of the patterns and of the slots' forms.
std::vector<std::string> all_words() {
  const auto grammar = Grammar::konkani();
  std::set<std::string> words;
  for (const auto& pattern : grammar.patterns()) add_words(pattern, words);
  for (const auto& [name, forms] : grammar.slots()) {
    for (const auto& form : forms) add_words(form, words);
  }
  return {words.begin(), words.end()};
}

/// espeak-ng's phonemes of texts, without the marks of stress and of liaison.
std::vector<std::string> phonemes(const std::string& voice, const std::vector<std::string>& texts) {
  const looptorch::testing::TemporaryFolder folder;
  std::ofstream lines(folder / "texts");
  for (const auto& text : texts) lines << text << "\n\n";  // a paragraph each, which is a line of phonemes
  lines.close();
  looptorch::app::run_process({"espeak-ng", "-q", "-x", "-v", voice, "-f", (folder / "texts").string(),
                               "--phonout=" + (folder / "phonemes").string()});
  std::vector<std::string> spoken;
  std::ifstream in(folder / "phonemes");
  for (std::string line; std::getline(in, line);) {
    line = std::regex_replace(line, std::regex("[',_ ]"), "");
    if (!line.empty()) spoken.push_back(line);
  }
  return spoken;
}

/// The name of a letter that a word's phonemes hold; empty if they hold none. "aakaar" and the like for vowel
/// signs, "shirvindu", "anuswar" and "chandrabindu" for nasals, "halant", "visarg"; as espeak-ng 1.51 says
/// them by the voices kok, mr and hi.
std::string letter_name(const std::string& phonemes) {
  for (const auto* name :
       {"a:ka:r",      "Ika:r",        "ika:r",   "Uka:r",  "u:ka:r",     "e:ka:r", "E:ka:r", "Eka:r",
        "o:ka:r",      "O:ka:r",       "Oka:r",   "rIka:r", "shIrVwindu", "VnUsw",  "VnUsv",  "c@ndr@2bInd",
        "cVndr@-bInd", "c@ndr@2windu", "hVl@-nt", "hVl@nt", "H@lVnt",     "wIsV"}) {
    if (phonemes.find(name) != std::string::npos) return name;
  }
  return {};
}

double power(const at::Tensor& samples) { return samples.to(at::kDouble).square().mean().item<double>(); }

}  // namespace

TEST_CASE("The grammar has 400 patterns, none twice, and 300 words beside them") {
  const auto grammar = Grammar::konkani();
  const std::set<std::string> patterns(grammar.patterns().begin(), grammar.patterns().end());
  CHECK(patterns.size() >= 400);
  CHECK(patterns.size() == grammar.patterns().size());
  std::set<std::string> words;
  for (const auto& [name, forms] : grammar.slots()) {
    for (const auto& form : forms) add_words(form, words);
  }
  CHECK(words.size() >= 300);
  for (const auto& pattern : patterns) add_words(pattern, words);
  CHECK(words.size() >= 600);
}

TEST_CASE("Every slot is used, and no form stands twice in one") {
  const auto grammar = Grammar::konkani();
  std::string all;
  for (const auto& pattern : grammar.patterns()) all += pattern;
  for (const auto& [name, forms] : grammar.slots()) {
    for (const auto& form : forms) all += form;
  }
  for (const auto& [name, forms] : grammar.slots()) {
    INFO(name);
    CHECK(all.find("{" + name + "}") != std::string::npos);
    CHECK(std::set<std::string>(forms.begin(), forms.end()).size() == forms.size());
  }
}

TEST_CASE("Sentences are Devanagari in normal form, words apart by one blank") {
  for (const auto& text : sentences(1, 3000)) {
    INFO(text);
    CHECK(konkanivani::normalize(text) == text);
    for (const auto character : looptorch::code_points(text)) {
      const auto c = looptorch::utf8_step(character, 0).code_point;
      const bool is_known = c == U' ' || (c >= 0x900 && c <= 0x97F);
      if (!is_known) CHECK(std::string(character) == "Devanagari");
    }
  }
}

TEST_CASE("Thousands of distinct sentences, also of 2 to 6 words") {
  const auto texts = sentences(2, 8000, 2, 6);
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() > 4000);
  for (const auto& text : texts) {
    const auto words = konkanivani::count_words(text);
    if (words < 2 || words > 6) CHECK(text == "2 to 6 words");
  }
  const auto shorter = sentences(2, 200, 2, 3);
  for (const auto& text : shorter) CHECK(konkanivani::count_words(text) <= 3);
}

TEST_CASE("A seed fixes the sentences, on every platform") {
  CHECK(sentences(1, 300) == sentences(1, 300));
  CHECK(sentences(1, 300) != sentences(3, 300));
  CHECK(Dice(1).roll() == 0x910a2dec89025cc1u);
}

TEST_CASE("A kind of sentence that the grammar lacks ends the search") {
  CHECK_THROWS_WITH(sentences(1, 1, 40, 50), "the grammar has no sentences of 40 to 50 words, or hardly any");
}

TEST_CASE("A grammar that cannot be used is refused by its line") {
  CHECK_THROWS_WITH(Grammar("a: b | c\nd", {"{a}"}), "\"d\": expected \"slot: form | form\"");
  CHECK_THROWS_WITH(Grammar("a:  | ", {"{a}"}), Contains("expected \"slot: form | form\""));
  CHECK_THROWS_WITH(Grammar("a: b\na: c", {"{a}"}), "the slot {a} is given twice");
  CHECK_THROWS_WITH(Grammar("a: b", {"x {c}"}), "\"x {c}\": there is no slot {c}");
  CHECK_THROWS_WITH(Grammar("a: b", {"x {a"}), "\"x {a\": a slot is not closed");
  CHECK_THROWS_WITH(Grammar("a: {b} x\nb: {a}", {"{a}"}), Contains("holds itself"));
  CHECK_THROWS_WITH(Grammar("a: b", {" \n "}), "the grammar has no pattern");
}

TEST_CASE("Slots are filled in place, within each other too") {
  const Grammar grammar("a: x\nb: <{a}>\nc: y | z", {"{b} and {a}{a}"});
  Dice dice(1);
  CHECK(grammar.sentence(dice) == "<x> and xx");
}

TEST_CASE("A recording is fixed by its seed, keeps its length and has the peak that was asked for") {
  const auto voice = at::sin(at::arange(8000, at::kFloat) * 0.05) * 0.3;
  Dice dice(5);
  std::set<bool> rooms, noises;
  for (int i = 0; i < 40; ++i) {
    const auto recording = konkanivani::draw_recording(dice);
    rooms.insert(recording.room);
    noises.insert(recording.snr_db != 0);
    const auto once = konkanivani::record(voice, 16000, recording),
               again = konkanivani::record(voice, 16000, recording);
    CHECK(once.equal(again));
    CHECK(once.sizes() == voice.sizes());
    CHECK(once.abs().max().item<double>() == Approx(recording.peak));
  }
  CHECK(rooms.size() == 2);
  CHECK(noises.size() == 2);
}

TEST_CASE("Noise lies as far below the voice as it was drawn, echoes follow the sound") {
  const auto voice = at::sin(at::arange(16000, at::kFloat) * 0.05);
  konkanivani::Recording recording{.room = false, .snr_db = 20, .colour = 0.6, .peak = 1, .seed = 3};
  const auto noisy = konkanivani::record(voice, 16000, recording);
  const auto gain = at::dot(noisy, voice) / at::dot(voice, voice);
  const auto noise = noisy - gain * voice;
  CHECK(10 * std::log10(power(gain * voice) / power(noise)) == Approx(20).margin(0.5));

  auto click = at::zeros({4000});
  click[1000] = 1;
  const auto echoed = konkanivani::record(click, 16000, {.room = true, .peak = 1, .seed = 4});
  CHECK(echoed.narrow(0, 0, 1000).abs().max().item<double>() == 0);
  CHECK(echoed.narrow(0, 1001, 2000).ne(0).sum().item<int64_t>() >= 6);
  CHECK(echoed[1000].item<double>() == 1);
  CHECK(konkanivani::record(at::zeros({100}), 16000, {}).abs().max().item<double>() == 0);
}

TEST_CASE("Darker noise has less of the high frequencies") {
  Dice dice(7);
  const auto rise = [](const at::Tensor& noise) { return power(noise.diff()) / power(noise); };
  const auto white = konkanivani::coloured_noise(20000, 0, dice),
             dark = konkanivani::coloured_noise(20000, 0.9, dice);
  CHECK(rise(white) == Approx(2).margin(0.1));
  CHECK(rise(dark) < 0.3);
}

// espeak-ng 1.51's Konkani voice speaks the names of vowel signs: the corpus was once spelled out.
TEST_CASE("Voices read the words, and no word as the names of its letters") {
  const auto words = all_words();
  for (const auto* voice : {"mr", "mr+f2"}) {
    const auto spoken = phonemes(voice, words);
    REQUIRE(spoken.size() == words.size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      INFO(words[i] << " is spoken as " << spoken[i]);
      CHECK(letter_name(spoken[i]).empty());
    }
  }
  CHECK(phonemes("mr", {"का", "कं", "नमस्कार"}) == std::vector<std::string>{"ka:", "kVn", "n@mska:r"});
  // As the voice kok says का, कं, बँक and नमस्कार.
  for (const auto* spelled : {"k@a:ka:r", "k@shIrVwindu", "b@c@ndr@2winduk", "n@m@s@:0hVl@-nt@2ka:ka:rr"})
    CHECK_FALSE(letter_name(spelled).empty());
}

TEST_CASE("Every voice speaks a word in the time that speech takes") {
  const looptorch::testing::TemporaryFolder folder;
  const auto texts = sentences(4, 4, 4, 6);
  for (const auto* voice : konkanivani::kVoices) {
    double seconds = 0;
    std::int64_t words = 0;
    for (const auto& text : texts) {
      const auto file = (folder / "spoken.wav").string();
      looptorch::app::run_process({"espeak-ng", "-v", voice, "-s", "190", "-w", file, "--", text});
      const auto audio = looptorch::audio::decode(file);
      seconds += static_cast<double>(audio.samples_T.size(0)) / static_cast<double>(audio.sample_rate);
      words += konkanivani::count_words(text);
    }
    INFO(voice << ": " << seconds << " s for " << words << " words");
    CHECK(seconds / static_cast<double>(words) > 0.25);
    CHECK(seconds / static_cast<double>(words) < 0.6);  // the voice kok takes 1.5 s
  }
}
