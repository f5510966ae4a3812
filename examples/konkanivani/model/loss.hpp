// SPDX-License-Identifier: MIT
// The model's losses: CTC over the encoder's frames and label-smoothed cross-entropy of the decoder. Both are
// sums over characters, not means; the Trainer divides by the window's number of characters. Lengths stay on
// the device, so that the host does not wait. Both losses are computed in fp32, also under autocast.
//
// Shapes: B batch, T encoder frames, L characters, V vocabulary.
#pragma once

#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/layers/ctc_loss.hpp>
#include <looptorch/objective/loss.hpp>

#include "../text/vocabulary.hpp"
#include "encoder.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace konkanivani {

/// Labels with this value count neither in the loss nor in its mean.
inline constexpr std::int64_t kIgnored = -100;

struct LossOptions {
  double ctc_weight = 0.3;       ///< the decoder's weight is 1 minus this
  double label_smoothing = 0.1;  ///< share of the probability that is spread over the vocabulary
};

/// Returns the frames that CTC needs for a text: one for each character, and one between equal ones.
[[nodiscard]] inline std::int64_t ctc_frames_needed(std::span<const std::int64_t> ids) {
  std::int64_t count = std::ssize(ids);
  for (std::size_t i = 1; i < ids.size(); ++i) count += ids[i] == ids[i - 1];
  return count;
}

/// Returns the first multiple of `step` that is not below `length`.
[[nodiscard]] constexpr std::int64_t next_multiple(std::int64_t length, std::int64_t step) {
  return (length + step - 1) / step * step;
}

/// The texts of a batch, in the forms that both losses take. CTC's form has neither start nor end.
struct Targets {
  at::Tensor characters_BL;          ///< CTC: characters, then kPad
  at::Tensor inputs_BL;              ///< decoder: kStart, characters, then kPad
  at::Tensor labels_BL;              ///< decoder: characters, kEnd, then kIgnored
  at::Tensor input_lengths_B;        ///< decoder: characters + 1
  at::Tensor ctc_frames_B;           ///< `ctc_frames_needed`
  std::vector<std::int64_t> counts;  ///< characters of each text, its end included

  /// Returns the targets of samples [begin, end).
  [[nodiscard]] Targets slice(std::int64_t begin, std::int64_t end) const {
    const auto rows = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, end - begin); };
    return {.characters_BL = rows(characters_BL),
            .inputs_BL = rows(inputs_BL),
            .labels_BL = rows(labels_BL),
            .input_lengths_B = rows(input_lengths_B),
            .ctc_frames_B = rows(ctc_frames_B),
            .counts = {counts.begin() + begin, counts.begin() + end}};
  }

  /// Returns the weight of a loss that is a mean over characters and ends.
  [[nodiscard]] double weight() const {
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  }
};

/// Makes the targets, padded to a multiple of `multiple` characters. In a loader they lie in its reused
/// memory. Throws UsageError if there are no texts. A text may be empty.
[[nodiscard]] inline Targets make_targets(std::span<const std::vector<std::int64_t>> texts,
                                          std::int64_t multiple = 1) {
  if (texts.empty()) throw looptorch::UsageError("make_targets: a batch needs a text");
  std::size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  const auto rows = static_cast<std::int64_t>(texts.size()),
             width = next_multiple(static_cast<std::int64_t>(longest), multiple);
  const auto make = [](at::IntArrayRef sizes) { return looptorch::batch_empty(sizes, at::kLong); };
  Targets targets{.characters_BL = make({rows, width}).fill_(kPad),
                  .inputs_BL = make({rows, width + 1}).fill_(kPad),
                  .labels_BL = make({rows, width + 1}).fill_(kIgnored),
                  .input_lengths_B = make({rows}),
                  .ctc_frames_B = make({rows}),
                  .counts = {}};
  targets.inputs_BL.select(1, 0).fill_(kStart);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<std::size_t>(row)];
    const auto ids = torch::tensor(text, at::kLong);
    const auto count = ids.size(0);
    targets.characters_BL[row].narrow(0, 0, count).copy_(ids);
    targets.inputs_BL[row].narrow(0, 1, count).copy_(ids);
    targets.labels_BL[row].narrow(0, 0, count).copy_(ids);
    targets.labels_BL[row][count] = kEnd;
    targets.input_lengths_B[row] = count + 1;
    targets.ctc_frames_B[row] = ctc_frames_needed(text);
    targets.counts.push_back(count + 1);
  }
  return targets;
}

namespace detail {

/// Returns the scores in fp32, or unchanged in fp64.
inline at::Tensor wide(const at::Tensor& scores) {
  return scores.scalar_type() == at::kDouble ? scores : scores.to(at::kFloat);
}

}  // namespace detail

/// Returns the sum over the batch of -log p(text | clip) under CTC, given scores `[B, T, V]` and the frames
/// of each clip. A clip too short for its text counts 0 instead of infinity, without a gradient.
[[nodiscard]] inline at::Tensor ctc_loss_sum(const at::Tensor& scores_BTV, const Targets& targets,
                                             const at::Tensor& frames_B) {
  const auto log_probs_TBV = at::log_softmax(detail::wide(scores_BTV), -1).transpose(0, 1);
  return looptorch::ctc_loss(log_probs_TBV, targets.characters_BL, frames_B, targets.input_lengths_B - 1,
                             {.blank = kBlank, .zero_infinity = true})
      .sum();
}

/// Returns the sum over characters and ends of the decoder's label-smoothed cross-entropy, given scores `[B,
/// L, V]`.
[[nodiscard]] inline at::Tensor decoder_loss_sum(const at::Tensor& scores_BLV, const Targets& targets,
                                                 double label_smoothing) {
  return at::cross_entropy_loss(detail::wide(scores_BLV).flatten(0, 1), targets.labels_BL.flatten(), {},
                                at::Reduction::Sum, kIgnored, label_smoothing);
}

/// Returns an objective's result for a model like KonkaniVani: both losses by their weights, summed over the
/// batch's characters and ends. Skips a head with weight 0. Metrics are means over characters and ends: `ctc`
/// and `attention`, if computed, and `too_short`, the share from which CTC learns nothing.
template <class Model>
[[nodiscard]] looptorch::Loss joint_loss(Model& model, const Encoded& encoded, const Targets& targets,
                                         const LossOptions& options) {
  const at::Tensor characters = targets.input_lengths_B.sum();  // as the weight; read anew by a graph
  looptorch::Loss loss{.weight = targets.weight()};
  const auto add = [&](const char* name, double weight, auto&& make) {
    if (weight == 0) return;
    const at::Tensor sum = make();
    loss.metrics.push_back({name, sum.detach() / characters});
    loss.sum = loss.sum.defined() ? loss.sum + sum * weight : sum * weight;
  };
  add("ctc", options.ctc_weight,
      [&] { return ctc_loss_sum(model->ctc_scores(encoded), targets, encoded.lengths_B); });
  add("attention", 1 - options.ctc_weight, [&] {
    const auto scores_BLV = model->decoder_scores(targets.inputs_BL, targets.input_lengths_B, encoded);
    return decoder_loss_sum(scores_BLV, targets, options.label_smoothing);
  });
  const at::Tensor is_long_B = encoded.lengths_B >= targets.ctc_frames_B;
  loss.metrics.push_back({"too_short", targets.input_lengths_B.masked_fill(is_long_B, 0).sum() / characters});
  return loss;
}

}  // namespace konkanivani
