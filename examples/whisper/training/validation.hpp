// SPDX-License-Identifier: MIT
// Measures the validation clips during training: their loss and, by decoding them, their word error rate.
// Each measurement is a row of the learning curve.
#pragma once

#include <looptorch/app/charts/curve_table.hpp>
#include <looptorch/app/charts/line_chart.hpp>
#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/audio/sound_examples.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/text_example.hpp>
#include <looptorch/metrics/word_error_rate.hpp>
#include <looptorch/report/learning_curve.hpp>

#include "../clips/batch.hpp"
#include "../clips/speech_dataset.hpp"
#include "../decoding/recognizer.hpp"
#include "evaluation.hpp"
#include "objective.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// The clips of a measurement that the report shows: reference and transcript, aligned word by word.
class ShownClips {
 public:
  void clear() { texts_.clear(), indices_.clear(); }
  [[nodiscard]] bool is_full() const { return texts_.size() == kShown; }
  void add(const looptorch::Alignment& words, std::int64_t index) {
    texts_.push_back(looptorch::text_example("clip " + std::to_string(texts_.size() + 1), words));
    indices_.push_back(index);
  }

  /// Makes the report play the clips, too. `clips` must outlive this object.
  void play(const SpeechDataset& clips) { clips_ = &clips; }

  [[nodiscard]] const std::vector<looptorch::TextExample>& texts() const { return texts_; }
  /// Returns the texts, then as much sound as there is room for.
  [[nodiscard]] std::vector<looptorch::Example> examples() {
    std::vector<looptorch::Example> examples(texts_.begin(), texts_.end());
    if (!clips_) return examples;
    std::vector<looptorch::audio::TitledClip> clips;
    for (std::size_t i = 0; i < texts_.size(); ++i)
      clips.push_back({texts_[i].title, clips_->utterances()[static_cast<std::size_t>(indices_[i])]});
    sounds_.add_to(examples, clips);
    return examples;
  }

 private:
  static constexpr std::size_t kShown = 8;

  std::vector<looptorch::TextExample> texts_;
  std::vector<std::int64_t> indices_;
  const SpeechDataset* clips_ = nullptr;  // null: no sound
  looptorch::audio::SoundExamples sounds_;
};

/// Measures for looptorch::Validate: `loss`, the mean over labels, and with `decodes` also `wer`, the word
/// error rate of the recognizer's transcripts. The encoder runs once for both.
class ValidationMeasure {
 public:
  /// `recognizer` must outlive it. `normalizer` is a name that choose_normalizer takes.
  ValidationMeasure(Recognizer& recognizer, const std::string& normalizer, bool decodes)
      : recognizer_(&recognizer), errors_(normalizer), decodes_(decodes) {}

  void add(Whisper& model, const Batch& batch) {
    const bool is_first = labels_ == 0;
    const auto states_BSD = states_of(model, batch);
    auto& decoder = model->decoder();
    const auto loss = decoder->loss(decoder(batch.tokens_BL, states_BSD), batch.labels_BL);
    const at::Tensor sum = loss.to(at::kDouble) * static_cast<double>(batch.label_count);
    unread_loss_ = unread_loss_.defined() ? unread_loss_ + sum : sum;
    labels_ += batch.label_count;
    if (!decodes_) return;
    const auto transcripts = recognizer_->decode_states(states_BSD, batch.languages);
    if (is_first) shown_->clear();
    for (std::size_t i = 0; i < transcripts.size(); ++i) {
      errors_.add(batch.texts[i], transcripts[i].text, batch.languages[i]);
      show(batch.texts[i], transcripts[i].text, batch.languages[i], batch.indices[i]);
    }
  }

  /// Sums the measurements of a run's ranks.
  void all_reduce(looptorch::RankReduction& reduction) {
    loss_ = loss_sum();
    unread_loss_ = at::Tensor();
    reduction.sum("loss of labels", loss_);
    reduction.sum("labels", labels_);
    errors_.all_reduce(reduction);
  }

  [[nodiscard]] std::map<std::string, double> result() const {
    std::map<std::string, double> measured{{"loss", loss_sum() / static_cast<double>(labels_)}};
    if (decodes_) measured["wer"] = errors_.rates().all;
    return measured;
  }

  /// Returns the first clips of the last measurement.
  [[nodiscard]] std::shared_ptr<ShownClips> shown() const { return shown_; }

 private:
  /// Returns the sum of losses. Waits for the device.
  [[nodiscard]] double loss_sum() const {
    return loss_ + (unread_loss_.defined() ? unread_loss_.item<double>() : 0.0);
  }

  void show(const std::string& reference, const std::string& hypothesis, const std::string& language,
            std::int64_t index) {
    if (shown_->is_full()) return;
    const auto normalizer = choose_normalizer(errors_.normalizer(), language);
    shown_->add(looptorch::align_words(normalizer.apply(reference), normalizer.apply(hypothesis)), index);
  }

  Recognizer* recognizer_;
  WordErrors errors_;
  bool decodes_;
  std::shared_ptr<ShownClips> shown_ = std::make_shared<ShownClips>();  // shared by all copies
  double loss_ = 0;
  at::Tensor unread_loss_;  // 0-dim fp64 on the model's device: what is not in `loss_` yet
  std::int64_t labels_ = 0;
};

/// A policy that adds a row to FOLDER/curve.csv after each validation, and draws curve.png: the epoch's
/// training loss so far, the validation loss and, if measured, the word error rate. A resumed run continues
/// its curve.
class WriteCurve {
 public:
  struct State {
    std::int64_t seen = 0;  ///< publications of the validation loss
  };

  static constexpr looptorch::Phase phase = looptorch::Phase::observe;
  static constexpr bool leader_only = true;

  /// Offers the contents of `shown` with each measurement.
  WriteCurve(const std::filesystem::path& folder, bool has_error_rate, std::shared_ptr<ShownClips> shown = {})
      : file_(file_in(folder)), has_error_rate_(has_error_rate), shown_(std::move(shown)) {}

  static std::filesystem::path file_in(const std::filesystem::path& folder) { return folder / "curve.csv"; }

  /// Removes an earlier run's files from the folder, for a run that begins anew.
  static void remove_from(const std::filesystem::path& folder) {
    std::filesystem::remove(file_in(folder));
    std::filesystem::remove(file_in(folder).replace_extension(".png"));
  }

  void on_fit_ready(looptorch::FitContext& fit, State& state) const { state.seen = publications(fit.run); }
  void on_window_end(looptorch::WindowContext& window, State& state) const { look(window.run, state); }
  void on_epoch_end(looptorch::EpochContext& epoch, State& state) const { look(epoch.run, state); }

 private:
  static std::int64_t publications(const looptorch::Run& run) {
    return run.metrics().publications("validation.loss");
  }

  void look(looptorch::Run& run, State& state) const {
    if (publications(run) == std::exchange(state.seen, publications(run))) return;
    const auto metric = [&](const char* name) {
      return run.metrics().find(name).value_or(std::numeric_limits<double>::quiet_NaN());
    };
    std::vector<std::string> columns{"training_loss", "loss"};
    std::vector<double> values{run.updates()[0].loss.totals().mean(), metric("validation.loss")};
    if (has_error_rate_) columns.emplace_back("wer"), values.push_back(metric("validation.wer"));
    looptorch::LearningCurve(file_, columns).add(run.progress().step, values);
    if (shown_ && !shown_->texts().empty()) run.offer_examples("validation", shown_->examples());
    draw();
  }

  void draw() const {
    namespace app = looptorch::app;
    const app::CurveTable table(file_);
    std::vector<app::Curve> curves{table.curve("training loss", "step", "training_loss"),
                                   table.curve("validation loss", "step", "loss")};
    if (has_error_rate_) curves.push_back(table.curve("validation word error rate", "step", "wer"));
    auto picture = file_;
    app::try_write_png(picture.replace_extension(".png"), app::line_chart(curves, {.x_name = "step"}));
  }

  std::filesystem::path file_;
  bool has_error_rate_;
  std::shared_ptr<ShownClips> shown_;
};

/// Sets "curve" to the rows of FOLDER/curve.csv, if there are any.
inline void set_curve(looptorch::app::Summary& summary, const std::filesystem::path& folder) {
  const auto file = WriteCurve::file_in(folder);
  if (std::filesystem::exists(file)) summary.set("curve", looptorch::app::CurveTable(file).to_json());
}

}  // namespace whisper
