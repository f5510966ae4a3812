// SPDX-License-Identifier: MIT
// Chooses tokens greedily, or by sampling at a temperature. A search keeps one or several unfinished texts of
// each clip, one a row. `advance` takes the scores after each row and returns which tokens continue which
// rows. BeamTexts in beam_search.hpp has the same interface.
//
// Shapes: R rows, clip by clip; V vocabulary.
#pragma once

#include <looptorch/base/random.hpp>

#include "decoding_options.hpp"
#include "repetition.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace whisper {

namespace detail {

/// True if the list is 0, 1, ... up to `size`.
inline bool counts_up(const std::vector<int64_t>& list, int64_t size) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i] != static_cast<int64_t>(i)) return false;
  return std::ssize(list) == size;
}

}  // namespace detail

/// A text without its end, and the sum of its tokens' log-probabilities, end included.
struct FoundText {
  std::vector<int64_t> tokens;
  float log_probability = 0;
};

/// The next step of all rows; without tokens if all clips are done.
struct SearchStep {
  std::vector<int64_t> tokens;   ///< By new row: its next token.
  std::vector<int64_t> parents;  ///< By new row: the row that it continues.
  std::vector<int64_t> clips;    ///< The clips that continue, by their index in the last step.
};

/// Takes the most probable token each time or, at a temperature above 0, samples `best_of` texts of each
/// clip. Samples depend only on the seed and a clip's own scores, not on the batch's other clips.
class SampledTexts {
 public:
  SampledTexts(int64_t clips, const DecodingOptions& options)
      : options_(options),
        group_(options.temperature > 0 ? options.best_of : 1),
        found_(clips),
        texts_(clips) {
    for (std::size_t clip = 0; clip < found_.size(); ++clip) rows_.push_back({.clip = clip});
  }

  /// Returns the unfinished texts, by row.
  [[nodiscard]] const std::vector<std::vector<int64_t>>& texts() const { return texts_; }

  /// Takes the scores after each row; the first time there is one row a clip.
  SearchStep advance(at::Tensor scores_RV) {
    const auto clips = static_cast<int64_t>(rows_.size()) / (started_ ? group_ : 1);
    const auto parent_of = [&, started = started_](int64_t row) { return started ? row : row / group_; };
    if (!std::exchange(started_, true)) {
      widen();
      if (group_ > 1) scores_RV = scores_RV.repeat_interleave(group_, 0);
    }
    const auto next = choose(scores_RV);
    SearchStep step;
    for (int64_t clip = 0; clip < clips; ++clip) {
      bool goes_on = false;
      for (int64_t row = clip * group_; row < (clip + 1) * group_; ++row) goes_on |= append(row, next);
      if (!goes_on) continue;
      step.clips.push_back(clip);
      for (int64_t row = clip * group_; row < (clip + 1) * group_; ++row) {
        step.tokens.push_back(next.tokens[static_cast<std::size_t>(row)]);
        step.parents.push_back(parent_of(row));
      }
    }
    keep(step.clips);
    return step;
  }

  /// Returns the texts of each clip.
  [[nodiscard]] std::vector<std::vector<FoundText>> take() && {
    keep({});
    return std::move(found_);
  }

 private:
  struct Row {
    std::size_t clip;
    float log_probability = 0;
    bool ended = false;
    looptorch::SplitMix64 draw{0};
  };

  struct Choice {
    std::vector<int64_t> tokens;
    std::vector<float> log_probabilities;
  };

  /// Gives each text of a clip a row, with random numbers of its own.
  void widen() {
    std::vector<Row> rows;
    for (const auto& row : rows_) {
      for (int64_t member = 0; member < group_; ++member) {
        rows.push_back(row);
        rows.back().draw =
            looptorch::SplitMix64(looptorch::derive_seed(options_.seed, static_cast<std::uint64_t>(member)));
      }
    }
    rows_ = std::move(rows);
    texts_.resize(rows_.size());
  }

  Choice choose(const at::Tensor& scores_RV) {
    const auto log_probs_RV = at::log_softmax(scores_RV.to(at::kFloat), 1);
    const auto tokens_R1 =
        options_.temperature > 0 ? drawn(scores_RV) : log_probs_RV.argmax(1, /*keepdim=*/true);
    const auto tokens = tokens_R1.cpu(), chosen = log_probs_RV.gather(1, tokens_R1).cpu();
    const auto *ids = tokens.const_data_ptr<int64_t>(), *end = ids + tokens.numel();
    const auto* log_probs = chosen.const_data_ptr<float>();
    return {{ids, end}, {log_probs, log_probs + chosen.numel()}};
  }

  /// Draws a token of each row by the inverse of its distribution.
  at::Tensor drawn(const at::Tensor& scores_RV) {
    const auto sums_RV = at::softmax(scores_RV.to(at::kDouble) / options_.temperature, 1).cumsum(1);
    std::vector<double> numbers;
    for (auto& row : rows_) numbers.push_back(row.draw.uniform());
    const auto numbers_R1 = torch::tensor(numbers, at::kDouble).unsqueeze(1).to(scores_RV.device());
    return at::searchsorted(sums_RV, numbers_R1 * sums_RV.slice(1, -1), /*out_int32=*/false, /*right=*/true)
        .clamp_max(scores_RV.size(1) - 1);
  }

  /// Appends the chosen token to a row; returns whether the row continues.
  bool append(int64_t index, const Choice& next) {
    const auto at = static_cast<std::size_t>(index);
    auto& row = rows_[at];
    auto& text = texts_[at];
    if (row.ended) return false;
    row.log_probability += next.log_probabilities[at];
    row.ended = options_.ends_text(next.tokens[at]);
    if (row.ended) return false;
    text.push_back(next.tokens[at]);
    const auto length = options_.ends_loops ? loop_begin(text) : std::nullopt;
    if (length) text.resize(*length);
    row.ended = length.has_value();
    return !row.ended;
  }

  /// Stores the texts of finished clips: all but those listed, by their index among the live ones.
  void keep(const std::vector<int64_t>& clips) {
    const auto group = static_cast<std::size_t>(started_ ? group_ : 1);
    std::vector<Row> rows;
    std::vector<std::vector<int64_t>> texts;
    auto next = clips.begin();
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      if (next != clips.end() && at / group > static_cast<std::size_t>(*next)) ++next;
      if (next != clips.end() && at / group == static_cast<std::size_t>(*next)) {
        rows.push_back(rows_[at]);
        texts.push_back(std::move(texts_[at]));
      } else {
        found_[rows_[at].clip].push_back({std::move(texts_[at]), rows_[at].log_probability});
      }
    }
    rows_ = std::move(rows), texts_ = std::move(texts);
  }

  DecodingOptions options_;
  int64_t group_;
  bool started_ = false;
  std::vector<std::vector<FoundText>> found_;  // by clip
  std::vector<Row> rows_;
  std::vector<std::vector<int64_t>> texts_;  // by row
};

}  // namespace whisper
