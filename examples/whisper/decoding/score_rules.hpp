// SPDX-License-Identifier: MIT
// Restricts the next tokens: openai-whisper's suppression and its rules for timestamps, as changes of the
// scores.
//
// Shapes: R rows (texts under way), V vocabulary.
#pragma once

#include "decoding_options.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace whisper {

/// Sets the scores of tokens that may not come next to minus infinity. Made for one device.
class ScoreRules {
 public:
  ScoreRules(const DecodingOptions& options, at::Device device)
      : suppress_(ids(options.suppress, device)),
        begin_suppress_(ids(options.begin_suppress, device)),
        timed_(!options.without_timestamps),
        end_of_text_(options.end_of_text),
        first_timestamp_(options.special.first_timestamp()),
        last_initial_(first_timestamp_ + std::llround(options.max_initial_seconds / kSecondsPerStep)) {}

  /// `texts[r]` holds the tokens that row r of `scores_RV` has produced so far; `begins` is true for the
  /// first.
  void apply(at::Tensor& scores_RV, const std::vector<std::vector<int64_t>>& texts, bool begins) const {
    scores_RV.index_fill_(1, suppress_, kForbidden);
    if (begins) scores_RV.index_fill_(1, begin_suppress_, kForbidden);
    if (!timed_) return;
    scores_RV.select(1, first_timestamp_ - 1).fill_(kForbidden);
    for (std::size_t row = 0; row < texts.size(); ++row) {
      auto scores_V = scores_RV[static_cast<int64_t>(row)];
      forbid_by_order(scores_V, texts[row]);
      if (begins) forbid(scores_V, 0, first_timestamp_);
      if (begins) forbid(scores_V, last_initial_ + 1, scores_V.size(0));
    }
    prefer_timestamps(scores_RV);
  }

  /// Returns the list on the device, without waiting for it.
  static at::Tensor ids(const std::vector<int64_t>& list, at::Device device) {
    return torch::tensor(list, at::kLong).to(device, /*non_blocking=*/true);
  }

 private:
  static constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  static constexpr double kSecondsPerStep = 0.02;

  static void forbid(at::Tensor& scores_V, int64_t begin, int64_t end) {
    if (begin < end) scores_V.slice(0, begin, end).fill_(kForbidden);
  }

  [[nodiscard]] bool is_time(int64_t token) const { return token >= first_timestamp_; }

  /// Timestamps come in pairs, except the last before the end, never go back, and enclose some time.
  void forbid_by_order(at::Tensor& scores_V, const std::vector<int64_t>& text) const {
    const auto size = text.size();
    const bool last = size >= 1 && is_time(text[size - 1]), before = size < 2 || is_time(text[size - 2]);
    if (last && before) forbid(scores_V, first_timestamp_, scores_V.size(0));
    if (last && !before) forbid(scores_V, 0, end_of_text_);
    for (auto it = text.rbegin(); it != text.rend(); ++it) {
      if (!is_time(*it)) continue;
      forbid(scores_V, first_timestamp_, last && !before ? *it : *it + 1);
      break;
    }
  }

  /// Forces a timestamp if all timestamps together are more probable than the most probable other token.
  void prefer_timestamps(at::Tensor& scores_RV) const {
    const auto log_probs_RV = at::log_softmax(scores_RV, 1);
    const auto times_R1 = log_probs_RV.slice(1, first_timestamp_).logsumexp(1, /*keepdim=*/true);
    const auto others_RV = log_probs_RV.slice(1, 0, first_timestamp_);
    const auto wins_R1 = times_R1 > others_RV.amax(1, /*keepdim=*/true);
    scores_RV.slice(1, 0, first_timestamp_).masked_fill_(wins_R1, kForbidden);
  }

  at::Tensor suppress_, begin_suppress_;
  bool timed_;
  int64_t end_of_text_, first_timestamp_, last_initial_;
};

}  // namespace whisper
