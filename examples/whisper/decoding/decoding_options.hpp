// SPDX-License-Identifier: MIT
// The settings of a decoding, with openai-whisper's names and defaults: the prompt, suppressed tokens, and
// the search.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// The ids of the tokens that stand for no text; -1 where the model has none.
struct SpecialTokens {
  int64_t start = -1, previous = -1, no_speech = -1, transcribe = -1, translate = -1;
  int64_t no_timestamps = -1;  ///< The timestamps follow it, 0.02 s each.
  std::vector<std::pair<std::string, int64_t>>
      languages{};  ///< Codes as "en"; empty for English-only models.

  [[nodiscard]] int64_t first_timestamp() const { return no_timestamps + 1; }
};

/// The forced first tokens of a decoding, the tokens that it must not produce, and its search.
struct DecodingOptions {
  std::vector<int64_t> prompt;          ///< Forced first tokens, beginning with start-of-transcript.
  std::vector<int64_t> suppress;        ///< Never produced.
  std::vector<int64_t> begin_suppress;  ///< Never produced right after the prompt.
  int64_t end_of_text = 0;
  int64_t max_length = 448;  ///< Tokens of prompt and text together.
  /// In greedy decoding, ends a text that repeats itself: see loop_begin. transformers does not.
  bool ends_loops = false;

  std::vector<int64_t> previous{};  ///< Earlier text; its last 223 tokens precede the prompt.
  int64_t max_new_tokens = std::numeric_limits<int64_t>::max();  ///< At most; openai-whisper has 224.
  bool without_timestamps = true;                                ///< Set it and the prompt by use_timestamps.
  double max_initial_seconds = 1;                                ///< Latest time of the first timestamp (s).
  int64_t beam_size = 1;                                         ///< Texts followed at once; 1: greedy.
  double patience = 1;                     ///< The search ends with round(beam_size * patience) texts.
  std::optional<double> length_penalty{};  ///< Google NMT's alpha; empty: ranks by mean log-probability.
  double temperature = 0;                  ///< Above 0 texts are sampled, without a beam.
  int64_t best_of = 1;                     ///< Sampled texts, of which the best is taken.
  std::uint64_t seed = 0;                  ///< Seed of the sampling, the same for all clips.
  SpecialTokens special{};
  bool empty_texts = false;           ///< Texts without tokens are learnt, too. Set it by allow_empty_texts.
  std::vector<int64_t> other_ends{};  ///< Further tokens at which a text ends.

  /// True if several texts are followed at once, and none is drawn.
  [[nodiscard]] bool uses_beam() const { return beam_size > 1 && temperature <= 0; }

  /// True for a token at which a text ends, which is no part of it.
  [[nodiscard]] bool ends_text(int64_t token) const {
    return token == end_of_text || std::find(other_ends.begin(), other_ends.end(), token) != other_ends.end();
  }

  /// Returns all tokens before the text.
  [[nodiscard]] std::vector<int64_t> first_tokens() const {
    if (previous.empty()) return prompt;
    const auto most = max_length / 2 - 1, count = std::min<int64_t>(most, std::ssize(previous));
    std::vector<int64_t> tokens{special.previous};
    tokens.insert(tokens.end(), previous.end() - count, previous.end());
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    return tokens;
  }
};

/// Lets the model write all signs of its vocabulary, even those that OpenAI's settings suppress as no speech,
/// such as "/" and "=". Special tokens stay suppressed.
inline void allow_all_signs(DecodingOptions& options) {
  std::erase_if(options.suppress, [&](int64_t id) { return id < options.end_of_text; });
}

/// Allows empty texts, to decode and learn noise as no text.
inline void allow_empty_texts(DecodingOptions& options) {
  options.empty_texts = true;
  std::erase(options.begin_suppress, options.end_of_text);
}

}  // namespace whisper
