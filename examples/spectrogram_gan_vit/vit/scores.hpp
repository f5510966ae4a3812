// SPDX-License-Identifier: MIT
// Scores predicted emotions: concordance, mean squared error and R2 of valence and arousal, over a whole set
// of clips.
//
// Shapes: B batch, M mel bins, F frames.
#pragma once

#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/metrics/regression.hpp>

#include "../pictures/spectrogram_picture.hpp"
#include "model.hpp"
#include "objective.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iomanip>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace spectrogram_vit {

/// Figures by name: "loss", "ccc" (the mean over valence and arousal), "ccc_valence", "mse_valence" and
/// "r2_valence", and the same three for arousal.
using Scores = std::map<std::string, double>;

/// Throws Error if the loss is NaN or infinite, as it is if weights are. `clips` names the set that was
/// scored.
inline void require_finite(const Scores& scores, const std::string& clips) {
  if (const auto loss = scores.find("loss"); loss != scores.end() && !std::isfinite(loss->second))
    throw looptorch::Error(
        "the loss on " + clips +
        " clips is NaN or infinite: the weights have diverged, and no model is saved; try a "
        "lower --learning-rate or --weight-decay");
}

/// Adds figures to the summary, with `prefix` and `suffix` around their names.
inline void set_scores(looptorch::app::Summary& summary, const Scores& scores, const std::string& prefix,
                       const std::string& suffix) {
  for (const auto& [name, value] : scores) summary.set(prefix + name + suffix, value);
}

/// A measure for Validate and Trainer::evaluate: adds batches and returns Scores, of all ranks within a fit.
class EmotionMeasure {
 public:
  /// Puts pictures of an evaluation's first clips into `shown`, with predicted emotions and labels, unless it
  /// is null.
  explicit EmotionMeasure(std::shared_ptr<std::vector<looptorch::Example>> shown = nullptr)
      : shown_(std::move(shown)) {}

  void add(ViT& model, const Batch& batch) {
    const auto predicted_B2 = model(batch.spectrograms_B1MF);
    add(predicted_B2, batch.conditions_B2);
    if (shown_) show(batch, predicted_B2);
  }

  /// Adds predicted emotions and the clips' own, `[B, 2]` each.
  void add(const at::Tensor& predicted_B2, const at::Tensor& wanted_B2) {
    valence_.add(predicted_B2.select(1, 0), wanted_B2.select(1, 0));
    arousal_.add(predicted_B2.select(1, 1), wanted_B2.select(1, 1));
  }

  /// Sums the measurements of a run's ranks.
  void all_reduce(looptorch::RankReduction& reduction) {
    valence_.all_reduce("valence", reduction);
    arousal_.all_reduce("arousal", reduction);
  }

  [[nodiscard]] Scores result() const {
    Scores scores;
    const auto add_scores = [&](const std::string& name, const looptorch::RegressionMoments& moments) {
      scores["ccc_" + name] = moments.concordance();
      scores["mse_" + name] = moments.mean_squared_error();
      scores["r2_" + name] = moments.r2();
    };
    add_scores("valence", valence_.moments());
    add_scores("arousal", arousal_.moments());
    scores["ccc"] = (scores["ccc_valence"] + scores["ccc_arousal"]) / 2;
    constexpr LossWeights kWeights;
    scores["loss"] = kWeights.valence * scores["mse_valence"] + kWeights.arousal * scores["mse_arousal"];
    return scores;
  }

 private:
  static constexpr std::int64_t kShown = 6;

  /// Returns `[1, M, F]` with no more frames than fit on half of a page.
  static at::Tensor narrowed(const at::Tensor& spectrogram_1MF) {
    constexpr std::int64_t kColumns = 320;
    const std::int64_t frames = std::min(spectrogram_1MF.size(2), kColumns);
    return at::adaptive_avg_pool2d(spectrogram_1MF, {spectrogram_1MF.size(1), frames});
  }

  void show(const Batch& batch, const at::Tensor& predicted_B2) {
    if (shown_clips_ == 0) shown_->clear();
    const auto predicted = predicted_B2.to(at::kCPU, at::kDouble),
               wanted = batch.conditions_B2.to(at::kCPU, at::kDouble);
    for (std::int64_t i = 0; i < predicted.size(0) && shown_clips_ < kShown; ++i, ++shown_clips_) {
      const auto pixels = spectrogram_gan::picture_of(narrowed(batch.spectrograms_B1MF[i])[0], 1);
      const auto number = [&](const at::Tensor& of, std::int64_t j) { return of[i][j].item<double>(); };
      char title[96];
      std::snprintf(title, sizeof title, "predicted valence %.2f, arousal %.2f; labelled %.2f, %.2f",
                    number(predicted, 0), number(predicted, 1), number(wanted, 0), number(wanted, 1));
      shown_->emplace_back(looptorch::PictureExample{title, pixels.size(0), pixels.size(1),
                                                     looptorch::app::png_of(pixels.contiguous())});
    }
  }

  std::shared_ptr<std::vector<looptorch::Example>> shown_;
  std::int64_t shown_clips_ = 0;  // in the current evaluation
  looptorch::RegressionMetrics valence_, arousal_;
};

/// Writes a table with a row for each named set of scores.
inline void print_scores(std::ostream& out, const std::vector<std::pair<std::string, Scores>>& rows) {
  out << std::left << std::setw(24) << "" << std::right;
  for (const auto* heading : {"CCC valence", "arousal", "MSE valence", "arousal", "R2 valence", "arousal"})
    out << std::setw(13) << heading;
  for (const auto& [name, scores] : rows) {
    out << '\n' << std::left << std::setw(24) << name << std::right << std::fixed << std::setprecision(3);
    for (const auto* figure :
         {"ccc_valence", "ccc_arousal", "mse_valence", "mse_arousal", "r2_valence", "r2_arousal"})
      out << std::setw(13) << scores.at(figure);
  }
  out << std::defaultfloat << std::setprecision(6) << std::endl;
}

}  // namespace spectrogram_vit
