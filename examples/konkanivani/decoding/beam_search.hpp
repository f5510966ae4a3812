// SPDX-License-Identifier: MIT
// Beam search over the scores of the model's two heads, CTC and the attention decoder, for the decodings
// `joint` and `attention`. Extends texts character by character, and keeps those with the highest score:
//
//   ctc_weight * log p_ctc(prefix)
//     + (1 - ctc_weight) * log p_decoder(text)
//     + length_bonus * length
//
// CTC keeps the decoder from skipping or repeating words. With ctc_weight 0 only the decoder is run, and with
// ctc_weight 1 only CTC. When a text ends, its CTC term becomes log p_ctc(exactly this text), and the
// decoder adds the log probability of the end token. The decoder runs on the texts of all clips at once.
//
// Shapes: B batch, R unfinished texts, T encoder frames, V vocabulary.
#pragma once

#include "../model/decoder.hpp"
#include "ctc_decoding.hpp"
#include "ctc_prefix_score.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace konkanivani {

/// The width of the search, the weights of a score's terms, and when a text must end.
struct BeamOptions {
  std::size_t beam = 8;  ///< number of texts of a clip that are continued
  std::size_t n_best = 1;
  double ctc_weight = 0.3;
  double length_bonus = 0;        ///< added for each character
  std::int64_t max_length = 400;  ///< characters; at most as many as frames, too
};

/// Returns the `n_best` texts of each clip, best first. The model should be in eval mode; the decoder runs on
/// its device, CTC and the ranking on the host.
template <class Model>
[[nodiscard]] std::vector<std::vector<Hypothesis>> beam_search(Model& model, const Encoded& encoded,
                                                               const BeamOptions& options = {});

namespace detail {

/// An unfinished text, its score, and the state by which CTC scores its extensions.
struct GrowingText {
  std::vector<std::int64_t> ids{};
  double decoder = 0;  ///< its log probability so far
  double score = 0;
  CtcPrefixScorer::State ctc{};
  std::size_t parent = 0;  ///< number of the text that it extends, among the clip's
};

/// The search for one clip.
class ClipSearch {
 public:
  ClipSearch(const BeamOptions& options, std::optional<CtcPrefixScorer> ctc, std::int64_t vocabulary,
             std::int64_t frames)
      : options_(&options),
        ctc_(std::move(ctc)),
        vocabulary_(vocabulary),
        limit_(std::min(options.max_length, frames)),
        growing_(1) {
    if (ctc_) growing_.front().ctc = ctc_->start();
  }

  [[nodiscard]] const std::vector<GrowingText>& growing() const { return growing_; }

  /// Ends each growing text, and extends it by a character; keeps the best of both. `decoder_V` returns the
  /// decoder's log probabilities after text i, or nullptr.
  template <class Decoder>
  void step(Decoder&& decoder_V) {
    std::vector<GrowingText> next;
    for (std::size_t i = 0; i < growing_.size(); ++i) {
      const double* decoder = decoder_V(i);
      end(growing_[i], decoder);
      if (static_cast<std::int64_t>(growing_[i].ids.size()) < limit_) extend(i, decoder, next);
    }
    keep_best(next, options_->beam);
    keep_best(ended_, options_->n_best);
    if (ctc_) {
      for (auto& text : next) text.ctc = ctc_->extended(growing_[text.parent].ctc, text.ids.back());
    }
    growing_ = std::move(next);
    if (is_settled()) growing_.clear();
  }

  [[nodiscard]] std::vector<Hypothesis> take() && {
    if (ended_.empty()) ended_.push_back({{}, kImpossible});
    return std::move(ended_);
  }

 private:
  [[nodiscard]] double score(double ctc, double decoder, std::size_t length) const {
    const double weight = options_->ctc_weight;
    return (weight > 0 ? weight * ctc : 0) + (weight < 1 ? (1 - weight) * decoder : 0) +
           options_->length_bonus * static_cast<double>(length);
  }

  void end(const GrowingText& text, const double* decoder) {
    const double ctc = ctc_ ? CtcPrefixScorer::ended(text.ctc) : 0;
    const double total = score(ctc, text.decoder + (decoder ? decoder[kEnd] : 0), text.ids.size());
    if (total != kImpossible) ended_.push_back({text.ids, total});
  }

  /// Adds the `beam` best continuations of one text; no other can be among the clip's `beam` best.
  void extend(std::size_t parent, const double* decoder, std::vector<GrowingText>& next) const {
    const auto& text = growing_[parent];
    const auto ctc =
        ctc_ ? ctc_->extensions(text.ctc) : std::vector<double>(static_cast<std::size_t>(vocabulary_));
    std::vector<GrowingText> longer;
    for (auto c = kFirstCharacter; c < vocabulary_; ++c) {
      const double so_far = text.decoder + (decoder ? decoder[c] : 0);
      const double total = score(ctc[static_cast<std::size_t>(c)], so_far, text.ids.size() + 1);
      if (total != kImpossible) longer.push_back({{c}, so_far, total, {}, parent});
    }
    keep_best(longer, options_->beam);
    for (auto& one : longer) {
      one.ids.insert(one.ids.begin(), text.ids.begin(), text.ids.end());
      next.push_back(std::move(one));
    }
  }

  template <class Text>
  static void keep_best(std::vector<Text>& texts, std::size_t count) {
    std::stable_sort(texts.begin(), texts.end(),
                     [](const Text& a, const Text& b) { return a.score > b.score; });
    if (texts.size() > count) texts.erase(texts.begin() + static_cast<std::ptrdiff_t>(count), texts.end());
  }

  /// True if no growing text can be among the best: no part of its score can rise except the bonus.
  [[nodiscard]] bool is_settled() const {
    if (growing_.empty() || ended_.size() < options_->n_best) return growing_.empty();
    const auto room = static_cast<double>(limit_) - static_cast<double>(growing_.front().ids.size());
    return ended_.back().score >= growing_.front().score + std::max(options_->length_bonus, 0.0) * room;
  }

  const BeamOptions* options_;
  std::optional<CtcPrefixScorer> ctc_;
  std::int64_t vocabulary_, limit_;
  std::vector<GrowingText> growing_;
  std::vector<Hypothesis> ended_;
};

/// The growing texts of all clips, as rows of the decoder's batch.
struct BeamRows {
  std::vector<std::int64_t> last, clip, parent;  ///< by row; `parent` is a row of the last step

  /// Returns the rows; `first` holds each clip's first row in the last step.
  [[nodiscard]] static BeamRows of(const std::vector<ClipSearch>& clips,
                                   const std::vector<std::size_t>& first) {
    BeamRows rows;
    for (std::size_t i = 0; i < clips.size(); ++i) {
      for (const auto& text : clips[i].growing()) {
        rows.last.push_back(text.ids.empty() ? kStart : text.ids.back());
        rows.clip.push_back(static_cast<std::int64_t>(i));
        rows.parent.push_back(static_cast<std::int64_t>(first[i] + text.parent));
      }
    }
    return rows;
  }
};

inline void check_options(const BeamOptions& options) {
  TORCH_CHECK(options.beam >= 1 && options.n_best >= 1 && options.max_length >= 0, "beam search: a beam of ",
              options.beam, ", ", options.n_best, " best and at most ", options.max_length, " characters");
  TORCH_CHECK(options.ctc_weight >= 0 && options.ctc_weight <= 1, "beam search: ctc_weight is ",
              options.ctc_weight, ", outside [0, 1]");
}

}  // namespace detail

template <class Model>
std::vector<std::vector<Hypothesis>> beam_search(Model& model, const Encoded& encoded,
                                                 const BeamOptions& options) {
  detail::check_options(options);
  const torch::NoGradGuard no_grad;
  const bool uses_ctc = options.ctc_weight > 0, uses_decoder = options.ctc_weight < 1;
  const auto on_device = [&](const std::vector<std::int64_t>& values) {
    return torch::tensor(values, at::kLong).to(encoded.states_BTD.device());
  };
  const auto lengths_B = encoded.lengths_B.cpu();
  const auto vocabulary = model->config().vocabulary;
  at::Tensor ctc_BTV;
  if (uses_ctc) ctc_BTV = ctc_log_probs(model->ctc_scores(encoded));

  std::vector<detail::ClipSearch> clips;
  for (std::int64_t i = 0; i < lengths_B.size(0); ++i) {
    const auto frames = lengths_B[i].template item<std::int64_t>();
    std::optional<CtcPrefixScorer> ctc;
    if (uses_ctc) ctc.emplace(ctc_BTV.accessor<double, 3>()[i], frames);
    clips.emplace_back(options, std::move(ctc), vocabulary, frames);
  }

  DecoderCache cache;
  std::vector<std::size_t> first(clips.size());
  std::iota(first.begin(), first.end(), std::size_t{0});
  for (auto rows = detail::BeamRows::of(clips, first); !rows.last.empty();) {
    at::Tensor decoder_RV;
    if (uses_decoder)
      decoder_RV =
          at::log_softmax(model->extend(on_device(rows.last), encoded, cache).to(at::kDouble), -1).cpu();
    std::size_t row = 0;
    for (std::size_t i = 0; i < clips.size(); ++i) {
      first[i] = row;
      row += clips[i].growing().size();
      clips[i].step([&](std::size_t text) {
        return uses_decoder ? decoder_RV.const_data_ptr<double>() +
                                  (first[i] + text) * static_cast<std::size_t>(vocabulary)
                            : nullptr;
      });
    }
    auto next = detail::BeamRows::of(clips, first);
    if (uses_decoder && !next.last.empty()) cache.select(on_device(next.parent), next.clip == rows.clip);
    rows = std::move(next);
  }

  std::vector<std::vector<Hypothesis>> texts;
  for (auto& clip : clips) texts.push_back(std::move(clip).take());
  return texts;
}

}  // namespace konkanivani
