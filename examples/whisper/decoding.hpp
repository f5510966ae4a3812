// SPDX-License-Identifier: MIT
// Greedy decoding with a key-value cache: the token ids of transformers' `generate(do_sample=False)`. Rows of
// a batch that reached the end of text leave it, so that a batch costs the sum of its rows' lengths.
// Whisper may repeat itself without end on speech that it does not know; such a row can be ended early.
#pragma once

#include "model.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace whisper {

/// The forced first tokens of a decoding and the tokens that it must not produce.
struct DecodingOptions {
  std::vector<int64_t> prompt;          ///< Forced first tokens, beginning with start-of-transcript.
  std::vector<int64_t> suppress;        ///< Never produced.
  std::vector<int64_t> begin_suppress;  ///< Never produced right after the prompt.
  int64_t end_of_text = 0;
  int64_t max_length = 448;  ///< Tokens of prompt and text together.
  bool ends_loops = false;   ///< Ends a text that repeats itself, see loop_begin; transformers does not.
};

inline constexpr std::size_t kLoopCopies = 5;   ///< So many equal pieces in a row are not speech,
inline constexpr std::size_t kLoopTokens = 24;  ///< if they have so many tokens together.

/// Returns the length of `ids` up to the end of the first piece if they end in a loop: kLoopCopies or more
/// copies of one piece, which have kLoopTokens or more tokens together. "Zero zero zero" and "ha ha ha ha ha
/// ha" are not loops. Costs at most a fifth of the ids' number for each piece that partly repeats, and
/// usually one comparison.
inline std::optional<std::size_t> loop_begin(const std::vector<int64_t>& ids) {
  for (std::size_t piece = 1; piece * kLoopCopies <= ids.size(); ++piece) {
    const auto copies = std::max(kLoopCopies, (kLoopTokens + piece - 1) / piece);
    if (piece * copies > ids.size()) continue;
    const auto first = ids.end() - static_cast<std::ptrdiff_t>(piece * copies);
    if (std::equal(first + static_cast<std::ptrdiff_t>(piece), ids.end(), first))
      return ids.size() - piece * (copies - 1);
  }
  return std::nullopt;
}

namespace detail {

/// The growing texts of a batch: takes one token for each unfinished row and returns which rows continue.
class GrowingTexts {
 public:
  GrowingTexts(int64_t rows, const DecodingOptions& options)
      : end_of_text_(options.end_of_text), ends_loops_(options.ends_loops), texts_(rows), live_(rows) {
    std::iota(live_.begin(), live_.end(), size_t{0});
  }

  /// Appends `next_B` (int64) to the live texts; returns the positions in `next_B` of those that have not
  /// ended.
  std::vector<int64_t> append(const at::Tensor& next_B) {
    const auto on_host = next_B.cpu();
    const auto next = on_host.accessor<int64_t, 1>();
    std::vector<int64_t> going;
    for (int64_t i = 0; i < next.size(0); ++i) {
      if (next[i] == end_of_text_) continue;
      texts_[live_[i]].push_back(next[i]);
      if (ended_loop(texts_[live_[i]])) continue;
      live_[going.size()] = live_[i];
      going.push_back(i);
    }
    live_.resize(going.size());
    return going;
  }

  [[nodiscard]] bool finished() const { return live_.empty(); }
  [[nodiscard]] std::vector<std::vector<int64_t>> take() && { return std::move(texts_); }

 private:
  bool ended_loop(std::vector<int64_t>& text) const {
    const auto length = ends_loops_ ? loop_begin(text) : std::nullopt;
    if (length) text.resize(*length);
    return length.has_value();
  }

  int64_t end_of_text_;
  bool ends_loops_;
  std::vector<std::vector<int64_t>> texts_;
  std::vector<size_t> live_;  // live_[i]: the text that row i of the shrinking batch continues
};

inline void forbid(at::Tensor& scores_BV, const at::Tensor& ids) {
  scores_BV.index_fill_(1, ids, -std::numeric_limits<float>::infinity());
}

}  // namespace detail

/// Returns the most probable tokens, without prompt and end of text: one list of ids for each row of
/// `mel_BMT`. The model and the frames must be on the same device; each step waits for it once, to find the
/// rows that have ended.
inline std::vector<std::vector<int64_t>> decode_greedily(Whisper& model, const at::Tensor& mel_BMT,
                                                         const DecodingOptions& options) {
  TORCH_CHECK(!options.prompt.empty(), "decode_greedily: the prompt is empty");
  torch::NoGradGuard no_grad;
  const auto ids = [&](const std::vector<int64_t>& list) {
    return torch::tensor(list, at::kLong).to(mel_BMT.device());
  };
  const auto suppress = ids(options.suppress), begin_suppress = ids(options.begin_suppress);
  const auto prompt_length = static_cast<int64_t>(options.prompt.size());
  const auto room = std::min(options.max_length, model->config().max_target_positions) - prompt_length;

  detail::GrowingTexts texts(mel_BMT.size(0), options);
  DecoderCache cache;
  auto& decoder = model->decoder();
  const auto states_BSD = model->encoder()(mel_BMT);
  auto tokens_BL = ids(options.prompt).expand({mel_BMT.size(0), -1});
  for (int64_t step = 0; step < room && !texts.finished(); ++step) {
    auto scores_BV = decoder->logits(decoder->extend(tokens_BL, states_BSD, cache).select(1, -1));
    detail::forbid(scores_BV, suppress);
    if (step == 0) detail::forbid(scores_BV, begin_suppress);
    tokens_BL = scores_BV.argmax(1, /*keepdim=*/true);
    const auto going = texts.append(tokens_BL.squeeze(1));
    if (static_cast<int64_t>(going.size()) == tokens_BL.size(0)) continue;
    tokens_BL = tokens_BL.index_select(0, ids(going));
    cache.select(ids(going));
  }
  return std::move(texts).take();
}

}  // namespace whisper
