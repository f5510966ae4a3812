// SPDX-License-Identifier: MIT
// Tests konkanivani/training: evaluation, objective
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/trainer.hpp>

#include "../tones.hpp"
#include "support/temporary_folder.hpp"

#include <konkanivani/training/evaluation.hpp>
#include <konkanivani/training/objective.hpp>

#include <cmath>
#include <sstream>

using namespace konkanivani_test;
using Catch::Contains;
using konkanivani::Recognizer;
using looptorch::testing::TemporaryFolder;
namespace lt = looptorch;

namespace {

std::vector<std::vector<int64_t>> best_ids(const std::vector<std::vector<konkanivani::Hypothesis>>& texts) {
  std::vector<std::vector<int64_t>> ids;
  for (const auto& text : texts) ids.push_back(text.front().ids);
  return ids;
}

}  // namespace

TEST_CASE("A recognizer is saved with its vocabulary and gives the same text when it is loaded") {
  const TemporaryFolder folder;
  auto recognizer = tiny_recognizer();
  recognizer.model->eval();
  konkanivani::save_recognizer(recognizer, folder.path());
  auto loaded = konkanivani::load_recognizer(folder.path(), at::kCPU);
  CHECK(loaded.vocabulary == recognizer.vocabulary);
  CHECK_FALSE(loaded.model->is_training());
  const auto mel_BMF = at::randn({2, 6, 40}), lengths_B = ids({40, 30});
  for (const auto* method : {"greedy", "ctc", "attention", "joint"}) {
    const konkanivani::DecodingOptions options{.method = method, .beam = {.max_length = 8}};
    CHECK(best_ids(konkanivani::recognize(loaded.model, mel_BMF, lengths_B, options)) ==
          best_ids(konkanivani::recognize(recognizer.model, mel_BMF, lengths_B, options)));
  }
}

TEST_CASE("A recognizer whose weights are NaN is refused by name, and would write empty texts") {
  const TemporaryFolder folder;
  auto recognizer = tiny_recognizer();
  recognizer.model->named_parameters()["ctc_head.bias"].detach()[0] = std::nan("");
  konkanivani::save_recognizer(recognizer, folder.path());
  CHECK_THROWS_WITH(
      konkanivani::load_recognizer(folder.path(), at::kCPU),
      (folder / "model.safetensors").string() + ": the weights \"ctc_head.bias\" hold NaN or infinity");
}

TEST_CASE("A vocabulary of another size than the model's is refused") {
  const TemporaryFolder folder;
  auto recognizer = tiny_recognizer();
  konkanivani::save_recognizer(recognizer, folder.path());
  const std::vector<std::string> texts{"कखगघ"};
  konkanivani::save_vocabulary(folder / "vocabulary.json",
                               konkanivani::Vocabulary::of(texts, konkanivani::Unit::code_point));
  CHECK_THROWS_WITH(konkanivani::load_recognizer(folder.path(), at::kCPU),
                    folder.path().string() + ": a vocabulary of 9 for a model of 8");
}

TEST_CASE("Flags that a decoding does not use are refused") {
  konkanivani::DecodingOptions options{.method = "joint", .beam = {}};
  std::int64_t beam = 8;
  lt::app::CommandLine line("transcribe", "");
  line.option("decoding", "NAME", options.method, "").option("beam", "N", beam, "");
  line.option("ctc-weight", "X", options.beam.ctc_weight, "");
  line.on_parsed(
      [&](const lt::app::CommandLine& parsed) { konkanivani::check_decoding_flags(parsed, options.method); });
  const auto parse = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "transcribe");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    return line.parse(static_cast<int>(argv.size()), argv.data());
  };
  CHECK(parse({"--beam=4", "--ctc-weight=0.5", "--decoding=joint"}));
  CHECK(parse({"--decoding=greedy"}));
  CHECK_THROWS_WITH(parse({"--decoding=attention", "--ctc-weight=0.5"}),
                    "--ctc-weight: attention decoding has no weights, joint decoding has");
  CHECK_THROWS_WITH(parse({"--decoding=greedy", "--beam=4"}), "--beam: greedy decoding keeps one text");
  CHECK_THROWS_WITH(parse({"--decoding=other"}), Contains("is not greedy, ctc, attention or joint"));
}

TEST_CASE("Each decoding is the one that its name says") {
  const torch::NoGradGuard no_grad;
  auto recognizer = tiny_recognizer();
  recognizer.model->eval();
  const auto mel_BMF = at::randn({2, 6, 40}) * 3, lengths_B = ids({40, 30});
  const auto recognized = [&](const std::string& method, konkanivani::BeamOptions beam = {}) {
    return best_ids(
        konkanivani::recognize(recognizer.model, mel_BMF, lengths_B, {.method = method, .beam = beam}));
  };
  const auto encoded = recognizer.model->encode(mel_BMF, lengths_B);
  const auto log_probs = konkanivani::ctc_log_probs(recognizer.model->ctc_scores(encoded));
  const std::vector<int64_t> frames{10, 8};
  CHECK(recognized("greedy") == konkanivani::decode_ctc_greedily(log_probs, frames));
  CHECK(recognized("ctc") == best_ids(konkanivani::decode_ctc_beam(log_probs, frames, 8)));
  CHECK(recognized("joint") == best_ids(konkanivani::beam_search(recognizer.model, encoded)));
  CHECK(recognized("attention") ==
        best_ids(konkanivani::beam_search(recognizer.model, encoded, {.ctc_weight = 0})));
  CHECK_THROWS_WITH(recognized("viterbi"), "decoding \"viterbi\" is not greedy, ctc, attention or joint");
}

TEST_CASE("Error rates are wrong characters by characters and wrong words by words, over all clips") {
  const auto result = konkanivani::with_error_rates({"कख ग", "घ"}, {"कख", "घघ"});
  CHECK(result.character_error_rate == Approx(3.0 / 5));
  CHECK(result.word_error_rate == Approx(2.0 / 3));
  std::ostringstream out;
  konkanivani::print_examples(out, result, 5);
  CHECK(out.str() == "    reference   कख ग\n    hypothesis  कख\n    reference   घ\n    hypothesis  घघ\n");
}

TEST_CASE("Evaluating leaves the mode of the model as it was") {
  Tones tones;
  auto recognizer = tiny_recognizer(20);
  const auto speech = tones.dataset(recognizer.vocabulary);
  for (const bool training : {true, false}) {
    recognizer.model->train(training);
    const auto before =
        lt::state_dict(recognizer.model).at("encoder.blocks.0.convolution.batch_norm.running_mean").clone();
    const auto transcripts = konkanivani::transcribe_all(recognizer, speech, {.clips = 2}, {}, {});
    CHECK(recognizer.model->is_training() == training);
    CHECK(transcripts.references == std::vector<std::string>{"क", "खग", "गक"});
    CHECK(before.equal(
        lt::state_dict(recognizer.model).at("encoder.blocks.0.convolution.batch_norm.running_mean")));
  }
}

TEST_CASE("A clip that cannot be read is listed and excluded from the error rates, or ends the evaluation") {
  Tones tones;
  auto recognizer = tiny_recognizer(20);
  lt::audio::encode(tones.utterances[1].audio_filepath, {at::zeros({12800}), 16000});
  const auto speech = tones.dataset(recognizer.vocabulary);
  konkanivani::SkippedItems skipped;
  const auto transcripts = konkanivani::transcribe_all(recognizer, speech, {.clips = 2}, {}, {}, &skipped);
  CHECK(transcripts.references == std::vector<std::string>{"क", "गक"});
  CHECK_THAT(skipped.describe(), Contains(tones.utterances[1].audio_filepath.string() + ": is silent"));
  CHECK_THROWS_AS(konkanivani::transcribe_all(recognizer, speech, {.clips = 2}, {}, {}), lt::LoaderError);
}

TEST_CASE("Transcripts of batches in any order stand in the order of the clips") {
  const auto vocabulary = tiny_recognizer().vocabulary;
  konkanivani::TranscriptCollector collector;
  const auto add = [&](std::vector<int64_t> indices, std::vector<std::string> texts) {
    std::vector<std::vector<konkanivani::Hypothesis>> hypotheses;
    for (size_t i = 0; i < indices.size(); ++i) hypotheses.push_back({{.ids = {5 + indices[i]}}});
    collector.add({.mel_BMF = {}, .lengths_B = {}, .indices = indices, .targets = {}, .texts = texts},
                  hypotheses, vocabulary);
  };
  add({2, 0}, {"ग", "क"});
  add({1}, {"क"});
  const auto all = collector.take();
  CHECK(all.references == std::vector<std::string>{"क", "क", "ग"});
  CHECK(all.hypotheses == std::vector<std::string>{"क", "ख", "ग"});
  CHECK(all.character_error_rate == Approx(1.0 / 3));
  CHECK(collector.take().references.empty());
}

TEST_CASE("A model that learnt three tones writes their texts, by all four decodings") {
  const looptorch::detail::SingleIntraOpThread one_thread;
  Tones tones;
  auto recognizer = tiny_recognizer(20);
  const auto speech = tones.dataset(recognizer.vocabulary);
  lt::FusedAdamW optimizer(recognizer.model->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(recognizer.model, optimizer, konkanivani::JointLoss{}, lt::ClipGradNorm{5.0});
  trainer.fit(lt::PinnedPrefetchLoader(speech, {.batch_size = 3}), {.epochs = 120});
  for (const auto* method : {"greedy", "ctc", "attention", "joint"}) {
    INFO(method);
    const auto transcripts =
        konkanivani::transcribe_all(recognizer, speech, {.clips = 2}, {}, {.method = method, .beam = {}});
    CHECK(transcripts.hypotheses == transcripts.references);
    CHECK(transcripts.character_error_rate == 0);
  }
}
