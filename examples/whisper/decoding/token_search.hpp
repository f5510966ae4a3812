// SPDX-License-Identifier: MIT
// Keeps the unfinished texts of a batch while they are decoded, greedily or by sampling at a temperature.
// Each unfinished text is a row. `advance` takes the tokens that TokenChoice has chosen for each row, and
// returns which tokens continue which rows. BeamTexts in beam_search.hpp has the same interface.
//
// Shapes: R rows, clip by clip.
#pragma once

#include <looptorch/base/random.hpp>

#include "decoding_options.hpp"
#include "repetition/loop_begin.hpp"

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

/// A text without its end, and the sum of its tokens' log-probabilities, that of the end included.
struct FoundText {
  std::vector<int64_t> tokens;
  float log_probability = 0;
};

/// The next step of all rows; it has no tokens if all clips are done.
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
        found_(static_cast<std::size_t>(clips)),
        texts_(static_cast<std::size_t>(clips * group_)) {
    for (std::size_t row = 0; row < texts_.size(); ++row) {
      const auto member = row % static_cast<std::size_t>(group_);
      rows_.push_back({.clip = row / static_cast<std::size_t>(group_),
                       .draw = looptorch::SplitMix64(looptorch::derive_seed(options_.seed, member))});
    }
  }

  /// Returns the unfinished texts, by row.
  [[nodiscard]] const std::vector<std::vector<int64_t>>& texts() const { return texts_; }

  /// Returns a row's next random number, from 0 to 1.
  double draw(std::size_t row) { return rows_[row].draw.uniform(); }

  /// Takes the token of each row and its log-probability, as TokenChoice returns them.
  SearchStep advance(const at::Tensor& chosen_R2) {
    const auto chosen = chosen_R2.accessor<float, 2>();
    const bool begins = !std::exchange(started_, true);
    SearchStep step;
    for (int64_t clip = 0; clip < std::ssize(rows_) / group_; ++clip) {
      bool goes_on = false;
      for (int64_t row = clip * group_; row < (clip + 1) * group_; ++row) goes_on |= append(row, chosen[row]);
      if (!goes_on) continue;
      step.clips.push_back(clip);
      for (int64_t row = clip * group_; row < (clip + 1) * group_; ++row) {
        step.tokens.push_back(token_of(chosen[row]));
        step.parents.push_back(begins ? clip : row);
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

  using Chosen = at::TensorAccessor<float, 1>;  // a log-probability and its token

  static int64_t token_of(const Chosen& chosen) { return static_cast<int64_t>(chosen[1]); }

  /// Appends the chosen token to a row; returns whether the row continues.
  bool append(int64_t index, const Chosen& chosen) {
    const auto at = static_cast<std::size_t>(index);
    const auto token = token_of(chosen);
    auto& row = rows_[at];
    auto& text = texts_[at];
    if (row.ended) return false;
    row.log_probability += chosen[0];
    row.ended = options_.ends_text(token);
    if (row.ended) return false;
    text.push_back(token);
    const auto length = options_.ends_loops ? loop_begin(text) : std::nullopt;
    if (length) text.resize(*length);
    row.ended = length.has_value();
    return !row.ended;
  }

  /// Moves finished clips' texts to `found_`. `clips` lists the others, by index in the last step.
  void keep(const std::vector<int64_t>& clips) {
    const auto group = static_cast<std::size_t>(group_);
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
