// SPDX-License-Identifier: MIT
// Decodes texts from the CTC head alone: by the best path, which is quick, or by a beam over prefixes, which
// sums all alignments of a text. Runs on the host, and reads only a clip's own frames, never its padding.
//
// Shapes: B batch, T encoder frames, V vocabulary.
#pragma once

#include "../text/vocabulary.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace konkanivani {

/// A text as ids of characters, and its log probability or another score.
struct Hypothesis {
  std::vector<std::int64_t> ids;
  double score = 0;
};

/// Returns CTC's log probabilities on the host, in fp64: `[B, T, V]` from scores of that shape. Ids that are
/// neither a character nor blank get no probability; the other ids share all of it.
[[nodiscard]] at::Tensor ctc_log_probs(const at::Tensor& scores_BTV);

/// Returns each clip's most probable path without repetitions and blanks; clip i has `frames[i]` frames.
[[nodiscard]] std::vector<std::vector<std::int64_t>> decode_ctc_greedily(
    const at::Tensor& log_probs_BTV, std::span<const std::int64_t> frames);

/// Returns the `n_best` most probable texts of each clip, best first, scored by log p(text | clip). Prefixes
/// outside the `beam` best of a frame are dropped; with a beam as large as the number of prefixes the result
/// is exact (Hannun et al. 2014).
[[nodiscard]] std::vector<std::vector<Hypothesis>> decode_ctc_beam(const at::Tensor& log_probs_BTV,
                                                                   std::span<const std::int64_t> frames,
                                                                   std::size_t beam, std::size_t n_best = 1);

namespace detail {

inline constexpr double kImpossible = -std::numeric_limits<double>::infinity();

/// Returns log(exp(a) + exp(b)).
[[nodiscard]] inline double log_add(double a, double b) {
  const auto high = std::max(a, b);
  return high == kImpossible ? kImpossible : high + std::log1p(std::exp(std::min(a, b) - high));
}

using FrameScores = at::TensorAccessor<double, 2>;

[[nodiscard]] inline bool may_be_written(std::int64_t id) { return id >= kFirstCharacter; }

/// Throws unless `log_probs_BTV` has the form of `ctc_log_probs`' result, and each clip has at least `frames`
/// frames.
inline void check_frames(const at::Tensor& log_probs_BTV, std::span<const std::int64_t> frames) {
  TORCH_CHECK(
      log_probs_BTV.dim() == 3 && log_probs_BTV.scalar_type() == at::kDouble && log_probs_BTV.is_cpu(),
      "CTC decoding: expected log probabilities [B, T, V] in fp64 on the host, got ",
      log_probs_BTV.toString(), " ", log_probs_BTV.sizes());
  TORCH_CHECK(static_cast<std::int64_t>(frames.size()) == log_probs_BTV.size(0),
              "CTC decoding: ", frames.size(), " lengths for ", log_probs_BTV.size(0), " clips");
  for (const auto count : frames)
    TORCH_CHECK(count >= 0 && count <= log_probs_BTV.size(1), "CTC decoding: a clip of ", count,
                " frames among ", log_probs_BTV.size(1));
}

[[nodiscard]] inline std::vector<std::int64_t> best_path(const FrameScores& log_probs_TV,
                                                         std::int64_t frames) {
  std::vector<std::int64_t> text;
  auto last = kBlank;
  for (std::int64_t t = 0; t < frames; ++t) {
    const double* row = log_probs_TV[t].data();
    const auto best = std::int64_t{std::max_element(row, row + log_probs_TV.size(1)) - row};
    if (best != last && may_be_written(best)) text.push_back(best);
    last = best;
  }
  return text;
}

/// Log probabilities of a prefix's alignments: of those that end in blank, and in its last character.
struct PrefixScore {
  double blank = kImpossible, character = kImpossible;
  [[nodiscard]] double total() const { return log_add(blank, character); }
};

using Prefixes = std::map<std::vector<std::int64_t>, PrefixScore>;

/// Adds to `next` what one more frame makes of `prefix`: the same, or one that is a character longer.
inline void grow(const std::vector<std::int64_t>& prefix, const PrefixScore& score,
                 const at::TensorAccessor<double, 1>& log_probs_V, Prefixes& next) {
  const auto add = [](double& to, double what) { to = log_add(to, what); };
  const auto last = prefix.empty() ? kBlank : prefix.back();
  auto& same = next[prefix];
  add(same.blank, score.total() + log_probs_V[kBlank]);
  if (!prefix.empty()) add(same.character, score.character + log_probs_V[last]);
  auto longer = prefix;
  longer.push_back(0);
  for (std::int64_t c = kFirstCharacter; c < log_probs_V.size(0); ++c) {
    longer.back() = c;
    add(next[longer].character, (c == last ? score.blank : score.total()) + log_probs_V[c]);
  }
}

/// Returns the `count` most probable prefixes, best first; the order of ids breaks ties.
[[nodiscard]] inline std::vector<Hypothesis> best_of(const Prefixes& prefixes, std::size_t count) {
  std::vector<Hypothesis> all;
  for (const auto& [ids, score] : prefixes) {
    if (const double total = score.total(); total != kImpossible) all.push_back({ids, total});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (all.size() > count) all.resize(count);
  return all;
}

[[nodiscard]] inline std::vector<Hypothesis> prefix_beam(const FrameScores& log_probs_TV, std::int64_t frames,
                                                         std::size_t beam, std::size_t n_best) {
  Prefixes prefixes{{{}, {.blank = 0}}};
  for (std::int64_t t = 0; t < frames; ++t) {
    Prefixes next, kept;
    for (const auto& [prefix, score] : prefixes) grow(prefix, score, log_probs_TV[t], next);
    for (const auto& best : best_of(next, beam)) kept.insert(next.extract(best.ids));
    prefixes = std::move(kept);
  }
  return best_of(prefixes, n_best);
}

}  // namespace detail

inline at::Tensor ctc_log_probs(const at::Tensor& scores_BTV) {
  const auto possible_BTV = scores_BTV.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  for (const auto id : {kPad, kStart, kEnd, kUnknown}) possible_BTV.select(2, id).fill_(detail::kImpossible);
  return at::log_softmax(possible_BTV, -1).cpu().contiguous();
}

inline std::vector<std::vector<std::int64_t>> decode_ctc_greedily(const at::Tensor& log_probs_BTV,
                                                                  std::span<const std::int64_t> frames) {
  detail::check_frames(log_probs_BTV, frames);
  const auto log_probs = log_probs_BTV.accessor<double, 3>();
  std::vector<std::vector<std::int64_t>> texts;
  for (std::size_t i = 0; i < frames.size(); ++i)
    texts.push_back(detail::best_path(log_probs[static_cast<std::int64_t>(i)], frames[i]));
  return texts;
}

inline std::vector<std::vector<Hypothesis>> decode_ctc_beam(const at::Tensor& log_probs_BTV,
                                                            std::span<const std::int64_t> frames,
                                                            std::size_t beam, std::size_t n_best) {
  detail::check_frames(log_probs_BTV, frames);
  TORCH_CHECK(beam >= 1 && n_best >= 1, "CTC decoding: a beam of ", beam, " for the ", n_best, " best");
  const auto log_probs = log_probs_BTV.accessor<double, 3>();
  std::vector<std::vector<Hypothesis>> texts;
  for (std::size_t i = 0; i < frames.size(); ++i)
    texts.push_back(detail::prefix_beam(log_probs[static_cast<std::int64_t>(i)], frames[i], beam, n_best));
  return texts;
}

}  // namespace konkanivani
