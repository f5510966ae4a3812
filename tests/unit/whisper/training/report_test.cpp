// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/base/files/file.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"
#include "unit/whisper/random_recognizer.hpp"

#include <whisper/training/report.hpp>

#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using whisper::Comparison, whisper::FinetuneOptions, whisper::Transcripts;

namespace {

std::string printed_by(const std::function<void()>& print) {
  std::ostringstream text;
  auto* const before = std::cout.rdbuf(text.rdbuf());
  print();
  std::cout.rdbuf(before);
  return text.str();
}

Transcripts said(std::vector<std::string> hypotheses) {
  return {{"turn left", "climb"}, std::move(hypotheses), {"en", "en"}};
}

whisper::Corpus corpus(const TemporaryFolder& folder) {
  const auto recognizer = whisper_test::random_recognizer();
  const auto part = [&](const std::string& name) {
    const auto file = folder / (name + ".wav");
    looptorch::audio::encode(file, {0.3 * (at::arange(8000, at::kFloat) * 0.2).sin(), 16000});
    return whisper::SpeechDataset(
        {{.audio_filepath = file, .text = "turn", .duration = 0.5, .language = "en"}}, recognizer.tokenizer,
        recognizer.decoding, {});
  };
  return {part("train"), part("validation"), part("test"), 30, 30, {}, {}, {}};
}

}  // namespace

TEST_CASE("The result has the error rates before and after, and why a run stopped") {
  const Comparison comparison(said({"turn right", "climb"}), said({"turn left", "climb"}), "english");
  CHECK(comparison.rates_before.all == Approx(1.0 / 3));
  CHECK(comparison.rates_after.all == 0);
  FinetuneOptions options;
  options.output = "out";
  looptorch::FitResult result;
  result.steps = 12;
  const auto text = printed_by([&] { whisper::print_result(comparison, options, result, 3.5); });
  CHECK_THAT(text, Contains("word error rate 0.333333 before, 0 after 12 steps; 3.5 s in all") &&
                       Contains("the model is in out") && !Contains("stopped early"));
  result.reason = "no better";
  CHECK_THAT(printed_by([&] { whisper::print_result(comparison, options, result, 3.5); }),
             Contains("stopped early: no better"));
}

TEST_CASE("Rates of a language that was detected after training only are not compared") {
  const Comparison comparison({{"eins", "zwei"}, {"eins", "zwo"}, {"de", "de"}},
                              {{"eins", "zwei"}, {"eins", "two"}, {"de", "en"}}, "marks");
  const auto text = printed_by([&] { whisper::print_result(comparison, {}, {}, 1.5); });
  CHECK_THAT(text, Contains("word error rate in de 0.5 before, 0 after") && !Contains("in en") &&
                       Contains("word error rate 0.5 before, 0.5 after"));
}

TEST_CASE("The best measurement is in the summary if its weights were kept") {
  looptorch::app::Summary without, with;
  looptorch::RestoreBest::State kept;
  whisper::report_best(without, "validation.wer", kept);
  CHECK_THAT(without.text(), !Contains("best"));
  kept.best.offer(0.25, 40, looptorch::Better::lower);
  kept.restored = true;
  whisper::report_best(with, "validation.wer", kept);
  CHECK_THAT(with.text(), Contains("\"best_step\": 40") && Contains("\"best_wer\": 0.25"));
}

TEST_CASE("Skipped clips are printed and listed in a file, to which a run that resumes adds") {
  const TemporaryFolder folder;
  auto data = corpus(folder);
  data.skipped.add("early.wav: is silent");
  looptorch::SkippedSamples unreadable;
  unreadable.count = 1;
  unreadable.first.push_back({.index = 0, .message = "train.wav: is damaged"});
  const looptorch::testing::CapturedStderr printed;
  whisper::report_skipped(data, unreadable, folder.path(), /*resumed=*/false);
  CHECK_THAT(printed.text(), Contains("train.wav: is damaged") && !Contains("early.wav"));
  const auto list = looptorch::read_file(folder / "skipped.txt");
  CHECK_THAT(list, Contains("early.wav: is silent") && Contains("train.wav: is damaged"));

  auto again = corpus(folder);
  again.skipped.add("later.wav: is silent");
  whisper::report_skipped(again, {}, folder.path(), /*resumed=*/true);
  const auto both = looptorch::read_file(folder / "skipped.txt");
  CHECK_THAT(both, Contains("early.wav") && Contains("train.wav") && Contains("later.wav"));
  auto anew = corpus(folder);
  whisper::report_skipped(anew, {}, folder.path(), /*resumed=*/false);
  CHECK_FALSE(std::filesystem::exists(folder / "skipped.txt"));
}

TEST_CASE("Transcripts from before training are written, and read again where a run resumes") {
  const TemporaryFolder folder;
  auto data = corpus(folder);
  auto recognizer = whisper_test::random_recognizer();
  FinetuneOptions options;
  options.output = folder.path();
  options.training.workers = 0;
  Transcripts first, second;
  CHECK_THAT(printed_by([&] { first = whisper::transcribe_before(recognizer, data, options, false); }),
             Contains("transcribing 1 clips"));
  CHECK(std::filesystem::exists(folder / "before.json"));
  CHECK(printed_by([&] { second = whisper::transcribe_before(recognizer, data, options, true); }).empty());
  CHECK(second.hypotheses == first.hypotheses);
  options.language = "de";  // another question
  CHECK_THAT(printed_by([&] { (void)whisper::transcribe_before(recognizer, data, options, true); }),
             Contains("transcribing"));
}
