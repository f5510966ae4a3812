// SPDX-License-Identifier: MIT
// Scores growing texts by CTC, for beam search: computes the probability that a clip's transcript begins with
// a text (Watanabe et al. 2017, algorithm 2). Extending a text by a character costs T x V multiplications for
// all V possible characters together.
//
// Shapes: T frames of the clip, V vocabulary.
#pragma once

#include "ctc_decoding.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace konkanivani {

/// Scores texts for one clip. Refers to the log probabilities, which must outlive it.
class CtcPrefixScorer {
 public:
  /// The state of a text: after t of T frames, the log probability of its alignments that end in its last
  /// character, or in blank.
  struct State {
    std::vector<double> character, blank;  ///< T + 1 each
    std::int64_t last = kBlank;            ///< the text's last character
  };

  /// Takes the first `frames` rows of `log_probs_TV`.
  CtcPrefixScorer(detail::FrameScores log_probs_TV, std::int64_t frames)
      : log_probs_(log_probs_TV), frames_(static_cast<std::size_t>(frames)) {}

  /// Returns the state of the empty text.
  [[nodiscard]] State start() const;

  /// Returns, by id, log p(the transcript begins with the text and that character); `[V]`.
  [[nodiscard]] std::vector<double> extensions(const State& state) const;

  /// Returns the state of the text with one more character.
  [[nodiscard]] State extended(const State& state, std::int64_t character) const;

  /// Returns log p(the transcript is the text).
  [[nodiscard]] static double ended(const State& state) {
    return detail::log_add(state.character.back(), state.blank.back());
  }

 private:
  /// Returns the log probability that the text was complete after t frames, in a way that `next` can follow
  /// as a new character.
  [[nodiscard]] static double ready(const State& state, std::size_t t, std::int64_t next) {
    return next == state.last ? state.blank[t] : detail::log_add(state.blank[t], state.character[t]);
  }

  [[nodiscard]] double at(std::size_t t, std::int64_t id) const {
    return log_probs_[static_cast<std::int64_t>(t)][id];
  }

  detail::FrameScores log_probs_;
  std::size_t frames_;
};

inline CtcPrefixScorer::State CtcPrefixScorer::start() const {
  State state{.character = std::vector<double>(frames_ + 1, detail::kImpossible),
              .blank = std::vector<double>(frames_ + 1, 0)};
  for (std::size_t t = 0; t < frames_; ++t) state.blank[t + 1] = state.blank[t] + at(t, kBlank);
  return state;
}

inline std::vector<double> CtcPrefixScorer::extensions(const State& state) const {
  const auto vocabulary = log_probs_.size(1);
  std::vector<double> scores(static_cast<std::size_t>(vocabulary), detail::kImpossible);
  std::vector<double> any(frames_);
  for (std::size_t t = 0; t < frames_; ++t)
    any[t] = ready(state, t, kPad);  // no character: nothing to repeat
  for (std::int64_t c = kFirstCharacter; c < vocabulary; ++c) {
    double highest = detail::kImpossible, sum = 0;
    const auto term = [&](std::size_t t) { return (c == state.last ? state.blank[t] : any[t]) + at(t, c); };
    for (std::size_t t = 0; t < frames_; ++t) highest = std::max(highest, term(t));
    if (highest == detail::kImpossible) continue;
    for (std::size_t t = 0; t < frames_; ++t) sum += std::exp(term(t) - highest);
    scores[static_cast<std::size_t>(c)] = highest + std::log(sum);
  }
  return scores;
}

inline CtcPrefixScorer::State CtcPrefixScorer::extended(const State& state, std::int64_t character) const {
  State next{.character = std::vector<double>(frames_ + 1, detail::kImpossible),
             .blank = std::vector<double>(frames_ + 1, detail::kImpossible),
             .last = character};
  for (std::size_t t = 0; t < frames_; ++t) {
    next.character[t + 1] = detail::log_add(next.character[t], ready(state, t, character)) + at(t, character);
    next.blank[t + 1] = detail::log_add(next.character[t], next.blank[t]) + at(t, kBlank);
  }
  return next;
}

}  // namespace konkanivani
