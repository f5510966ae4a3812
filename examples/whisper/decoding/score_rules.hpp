// SPDX-License-Identifier: MIT
// Forbids tokens by setting their scores to minus infinity: tokens in openai-whisper's lists of suppressed
// tokens, and tokens that break its rules for timestamps.
//
// Shapes: R rows (texts under way), V vocabulary.
#pragma once

#include "decoding_options.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace whisper {

/// The lowest text token and the lowest timestamp that may come next. The vocabulary's order is: text, the
/// end of the text, other special tokens, timestamps.
struct FirstAllowed {
  int64_t text = 0, time = 0;
};

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

  /// Returns what may follow `text`, the tokens that a row has produced so far. The first token is a
  /// timestamp. Timestamps come in pairs, though the last may stand alone before the end; they never
  /// decrease, and a pair begins before it ends.
  [[nodiscard]] FirstAllowed first_allowed(const std::vector<int64_t>& text) const {
    if (!timed_) return {};
    if (text.empty()) return {.text = first_timestamp_};
    const auto size = text.size();
    const bool last = is_time(text[size - 1]), before = size < 2 || is_time(text[size - 2]);
    if (last && before) return {.time = std::numeric_limits<int64_t>::max()};
    const auto time = std::find_if(text.rbegin(), text.rend(), [&](int64_t token) { return is_time(token); });
    if (time == text.rend()) return {};
    return last ? FirstAllowed{.text = end_of_text_, .time = *time} : FirstAllowed{.time = *time + 1};
  }

  /// Forbids tokens in `scores_RV`. `first_R2` holds each row's FirstAllowed, which matters only with
  /// timestamps; `begins` is true for the first token of all rows.
  void apply(at::Tensor& scores_RV, const at::Tensor& first_R2, bool begins) const {
    scores_RV.index_fill_(1, suppress_, kForbidden);
    if (begins) scores_RV.index_fill_(1, begin_suppress_, kForbidden);
    if (!timed_) return;
    scores_RV.select(1, first_timestamp_ - 1).fill_(kForbidden);
    const auto ids_V = at::arange(scores_RV.size(1), first_R2.options());
    const auto forbid_below = [&](int64_t begin, int64_t end, const at::Tensor& first_R1) {
      scores_RV.slice(1, begin, end).masked_fill_(ids_V.slice(0, begin, end) < first_R1, kForbidden);
    };
    forbid_below(0, first_timestamp_, first_R2.narrow(1, 0, 1));
    forbid_below(first_timestamp_, scores_RV.size(1), first_R2.narrow(1, 1, 1));
    if (begins) scores_RV.slice(1, last_initial_ + 1).fill_(kForbidden);
    prefer_timestamps(scores_RV);
  }

  /// Returns the list on the device, without waiting for it.
  static at::Tensor ids(const std::vector<int64_t>& list, at::Device device) {
    return torch::tensor(list, at::kLong).to(device, /*non_blocking=*/true);
  }

 private:
  static constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  static constexpr double kSecondsPerStep = 0.02;

  [[nodiscard]] bool is_time(int64_t token) const { return token >= first_timestamp_; }

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
