// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "unit/whisper/reference.hpp"

#include <whisper/training/validation.hpp>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

using looptorch::testing::TemporaryFolder;
using whisper::Batch, whisper::Recognizer, whisper::ValidationMeasure, whisper::WriteCurve;

namespace {

constexpr int64_t kEnd = 295, kStart = 296, kNoTimestamps = 298;

Recognizer recognizer() {
  torch::manual_seed(3);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 300,
                                                .d_model = 16,
                                                .encoder_layers = 1,
                                                .decoder_layers = 1,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 2,
                                                .encoder_ffn_dim = 32,
                                                .decoder_ffn_dim = 32,
                                                .num_mel_bins = 6,
                                                .max_source_positions = 20,
                                                .max_target_positions = 12});
  return {.model = model,
          .tokenizer = whisper::load_tokenizer(whisper_test::kParity / "small_tokenizer.json"),
          .decoding = {.prompt = {kStart, kNoTimestamps},
                       .suppress = {},
                       .begin_suppress = {},
                       .end_of_text = kEnd,
                       .max_length = 12}};
}

Batch batch(const std::vector<std::string>& texts, const whisper::Tokenizer& tokenizer) {
  std::vector<whisper::Sample> samples;
  for (const auto& text : texts) {
    whisper::Sample sample{.mel_MT = at::randn({6, 16}), .tokens = {kStart, kNoTimestamps}, .text = text};
    for (const auto id : tokenizer.encode(text)) sample.tokens.push_back(id);
    sample.tokens.push_back(kEnd), sample.language = "en";
    samples.push_back(std::move(sample));
  }
  return whisper::collate(samples, kEnd);
}

/// A run of a straight line, validated every second step, whose curve lies in `folder`. It ends with an
/// exception after step `fails_at`.
void fit(const std::filesystem::path& folder, int64_t fails_at, bool resumes = false) {
  torch::manual_seed(1);
  torch::nn::Linear line(1, 1);
  looptorch::FusedSGD optimizer(line->parameters(), {.lr = 0.1});
  const auto objective = [](torch::nn::Linear& line, const at::Tensor& x_B1) {
    return at::mse_loss(line(x_B1), 2 * x_B1);
  };
  const std::vector<at::Tensor> batches(4, at::ones({2, 1}));
  const auto fail = [&](looptorch::WindowContext& window) {
    if (window.run.progress().step == fails_at) throw std::runtime_error("killed");
  };
  looptorch::Trainer trainer(line, optimizer, objective, looptorch::Validate{batches, {.every = 2}},
                             looptorch::SnapshotEvery{.folder = folder / "snapshots", .steps = 3},
                             looptorch::On{looptorch::kObserve, fail}, WriteCurve(folder, false));
  (void)trainer.fit(batches,
                    {.epochs = 2, .resume = resumes ? folder / "snapshots" : std::filesystem::path()});
}

}  // namespace

TEST_CASE("Validation measures the objective's loss and the error rate of the recognizer's transcripts") {
  auto tiny = recognizer();
  const auto first = batch({"turn left", "climb"}, tiny.tokenizer);
  auto second = batch({"a b c d"}, tiny.tokenizer);
  second.texts = tiny.transcribe(second.mel_BMT);  // transcribed without an error
  REQUIRE(!second.texts[0].empty());

  ValidationMeasure measure(tiny, "none", true);
  torch::NoGradGuard no_grad;
  for (const auto& each : {first, second}) measure.add(tiny.model, each);
  double loss = 0;
  for (const auto& each : {first, second})
    loss += tiny.model->loss(each.mel_BMT, each.tokens_BL, each.labels_BL).item<double>() *
            static_cast<double>(each.label_count);
  const auto texts = tiny.transcribe(first.mel_BMT);
  whisper::WordErrors errors("none");
  for (size_t i = 0; i < 2; ++i) errors.add(first.texts[i], texts[i], "en");
  errors.add(second.texts[0], second.texts[0], "en");
  const auto result = measure.result();
  CHECK(result.size() == 2);
  CHECK(result.at("loss") == Approx(loss / static_cast<double>(first.label_count + second.label_count)));
  CHECK(result.at("wer") == errors.rates().all);
  CHECK(result.at("wer") > 0);

  // The report shows the clips of the last measurement, with errors marked.
  const auto right = [](const looptorch::TextExample& text) {
    const auto& pieces = text.pieces;
    return std::all_of(pieces.begin(), pieces.end(), [](auto& piece) { return piece.expected == piece.got; });
  };
  REQUIRE(measure.shown()->texts().size() == 3);
  CHECK((!right(measure.shown()->texts()[0]) && right(measure.shown()->texts()[2])));
  CHECK(measure.shown()->examples().size() == 3);  // without sound
  ValidationMeasure again = ValidationMeasure(tiny, "none", true), copy = again;
  copy.add(tiny.model, first);
  CHECK(again.shown()->texts().size() == 2);
  again.add(tiny.model, second);
  CHECK(again.shown()->texts().size() == 1);

  ValidationMeasure loss_alone(tiny, "none", false);
  loss_alone.add(tiny.model, first);
  CHECK(loss_alone.shown()->texts().empty());
  CHECK(loss_alone.result().size() == 1);
}

TEST_CASE("The curve has a row a measurement, and a resumed run has the curve of one without a stop") {
  const TemporaryFolder whole, stopped;
  fit(whole.path(), -1);
  const auto curve = looptorch::read_file(whole / "curve.csv");
  CHECK(curve.starts_with("step,training_loss,loss\n2,"));
  CHECK(std::count(curve.begin(), curve.end(), '\n') == 5);
  CHECK(looptorch::read_file(whole / "curve.png").starts_with("\x89PNG"));

  CHECK_THROWS_WITH(fit(stopped.path(), 5), "killed");
  fit(stopped.path(), -1, true);  // from step 3: measures step 4 again
  CHECK(looptorch::read_file(stopped / "curve.csv") == curve);

  looptorch::app::Summary summary;
  whisper::set_curve(summary, whole.path());
  const auto rows = looptorch::Json::parse(summary.text()).at("curve").as_array();
  REQUIRE(rows.size() == 4);
  CHECK(rows[3].at("step") == 8);
  CHECK(rows[3].at("loss").as_number() < rows[0].at("loss").as_number());
  WriteCurve::remove_from(whole.path());
  CHECK_FALSE(std::filesystem::exists(whole / "curve.csv"));
  looptorch::app::Summary none;
  whisper::set_curve(none, whole.path());
  CHECK(none.text() == "{}");
}
