// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "unit/konkanivani/tones.hpp"

#include <konkanivani/training/objective.hpp>
#include <konkanivani/training/validation.hpp>

#include <iostream>
#include <sstream>
#include <string>

using namespace konkanivani_test;
using Catch::Contains;
namespace lt = looptorch;

TEST_CASE("Validation measures the loss by character and the errors of greedy decoding") {
  Tones tones;
  auto recognizer = tiny_recognizer(20);
  recognizer.model->eval();
  const auto speech = tones.dataset(recognizer.vocabulary);
  const torch::NoGradGuard no_grad;
  konkanivani::TrainOptions options;
  for (const double ctc_weight : {0.7, 0.0, 1.0}) {
    options.ctc_weight = ctc_weight;
    konkanivani::TranscriptCollector collector;
    konkanivani::ValidationMeasure measure(recognizer, options, collector);
    double sum = 0, weight = 0;
    for (auto& batch : lt::PinnedPrefetchLoader(speech, {.batch_size = 2})) {
      measure.add(recognizer.model, batch);
      const auto loss = konkanivani::JointLoss{options.loss()}(recognizer.model, batch);
      sum += loss.sum.item<double>();
      weight += loss.weight.number();
    }
    const auto result = measure.result();
    CHECK(result.at("loss") == Approx(sum / weight));
    const auto transcripts =
        konkanivani::transcribe_all(recognizer, speech, {.clips = 2}, {}, options.decoding());
    CHECK(result.at("cer") == Approx(transcripts.character_error_rate));
    CHECK(result.at("wer") == Approx(transcripts.word_error_rate));
    CHECK(collector.take().hypotheses == transcripts.hypotheses);
    CHECK(result.contains("ctc") == (ctc_weight > 0));
    CHECK(result.contains("attention") == (ctc_weight < 1));
  }
}

TEST_CASE("After each epoch the rates are printed and added to the curve") {
  Tones tones;
  auto recognizer = tiny_recognizer(20);
  const auto speech = tones.dataset(recognizer.vocabulary);
  konkanivani::TrainOptions options;
  options.output = tones.folder.path();
  lt::FusedAdamW optimizer(recognizer.model->parameters(), {.lr = 1e-3});
  konkanivani::Validation validation(recognizer, speech, options);
  lt::PinnedPrefetchLoader held_out(speech, {.batch_size = 2});
  const auto report = [&](lt::EpochContext& epoch) { validation.report(epoch); };
  std::ostringstream printed;
  auto* const before = std::cout.rdbuf(printed.rdbuf());
  lt::Trainer trainer(recognizer.model, optimizer, konkanivani::JointLoss{},
                      lt::Validate{held_out, validation.measure()}, lt::On{lt::kObserve, report});
  trainer.fit(lt::PinnedPrefetchLoader(speech, {.batch_size = 3}), {.epochs = 2});
  std::cout.rdbuf(before);
  CHECK_THAT(printed.str(), Contains("    CER ") && Contains(", WER ") && Contains("reference   खग"));
  std::istringstream curve(lt::read_file(tones.folder / "curve.csv"));
  std::string header, first, second, more;
  std::getline(curve, header), std::getline(curve, first), std::getline(curve, second);
  CHECK(header == "step,seconds,cer,wer");
  CHECK_THAT(first, Catch::StartsWith("1,"));
  CHECK_THAT(second, Catch::StartsWith("2,"));
  CHECK_FALSE(std::getline(curve, more));
}
