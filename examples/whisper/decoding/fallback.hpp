// SPDX-License-Identifier: MIT
// Decodes a clip again at a higher temperature if its text repeats itself or the model is unsure of it:
// openai-whisper's temperature fallback. If there is probably no speech, the text is left empty.
//
// Shapes: B clips, S encoder positions, D width of the model.
#pragma once

#include <looptorch/base/text/trimmed.hpp>

#include "decoding.hpp"
#include "repetition/deflate_size.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// When a text is decoded again; a threshold without a value rejects no text.
struct FallbackOptions {
  std::vector<double> temperatures{0,   0.2, 0.4,
                                   0.6, 0.8, 1};  ///< Tried in order, until a text is good enough.
  std::optional<double> compression_ratio = 2.4;  ///< A text with a higher ratio repeats itself.
  std::optional<double> log_probability = -1;     ///< A text with a lower mean is unsure.
  std::optional<double> no_speech = 0.6;          ///< Above it, a clip with an unsure text is silence.
};

/// A clip's text, and how it was decoded.
struct Transcript {
  std::string text;             ///< Empty for silence.
  std::string language;         ///< For example "en".
  std::vector<int64_t> tokens;  ///< Also those of silence.
  double average_log_probability = 0, no_speech_probability = 0, compression_ratio = 0, temperature = 0;
  bool is_silence = false;  ///< True if the text was dropped as no speech.
};

namespace detail {

/// Returns the options that decode once, at `temperature`, and take every text.
inline FallbackOptions once(double temperature) {
  return {.temperatures = {temperature}, .compression_ratio = {}, .log_probability = {}, .no_speech = {}};
}

/// True for a text that a retry would not improve: probably there is no speech, and the model is unsure of
/// the words.
inline bool needs_no_retry(const Transcript& transcript, const FallbackOptions& options) {
  return options.no_speech && transcript.no_speech_probability > *options.no_speech &&
         options.log_probability && transcript.average_log_probability < *options.log_probability;
}

inline bool is_good_enough(const Transcript& transcript, const FallbackOptions& options) {
  if (needs_no_retry(transcript, options)) return true;
  const bool repeats = options.compression_ratio && transcript.compression_ratio > *options.compression_ratio;
  const bool unsure =
      options.log_probability && transcript.average_log_probability < *options.log_probability;
  return !repeats && !unsure;
}

/// True for a text to drop: probably there is no speech, and the model is not sure of the words.
inline bool counts_as_silence(const Transcript& transcript, const FallbackOptions& options) {
  if (!options.no_speech || transcript.no_speech_probability <= *options.no_speech) return false;
  return !options.log_probability || transcript.average_log_probability <= *options.log_probability;
}

}  // namespace detail

/// Decodes each clip at the first temperature, and retries texts that are not good enough at the next one;
/// the last temperature's text is final. At temperatures above 0 it samples `best_of` texts instead of using
/// a beam. `text_of` turns tokens into text. `graphs` as in `decode`.
inline std::vector<Transcript> decode_with_fallback(
    Whisper& model, const at::Tensor& states_BSD, DecodingOptions options, const FallbackOptions& fallback,
    const std::function<std::string(const std::vector<int64_t>&)>& text_of, TokenGraphs* graphs = nullptr) {
  TORCH_CHECK(!fallback.temperatures.empty(), "decode_with_fallback: there is no temperature to decode at");
  std::vector<Transcript> transcripts(static_cast<std::size_t>(states_BSD.size(0)));
  std::vector<int64_t> open(transcripts.size());
  std::iota(open.begin(), open.end(), int64_t{0});
  auto states = states_BSD;
  for (const double temperature : fallback.temperatures) {
    if (open.empty()) break;
    if (std::ssize(open) < states_BSD.size(0))
      states = states_BSD.index_select(0, ScoreRules::ids(open, states_BSD.device()));
    options.temperature = temperature;
    auto decoded = decode(model, states, options, graphs);
    std::vector<int64_t> still_open;
    for (std::size_t i = 0; i < open.size(); ++i) {
      auto& transcript = transcripts[static_cast<std::size_t>(open[i])];
      transcript = {.text = text_of(decoded[i].tokens),
                    .language = {},
                    .tokens = std::move(decoded[i].tokens),
                    .average_log_probability = decoded[i].average_log_probability,
                    .no_speech_probability = decoded[i].no_speech_probability,
                    .temperature = temperature};
      transcript.compression_ratio = compression_ratio(looptorch::trimmed(transcript.text));
      if (!detail::is_good_enough(transcript, fallback)) still_open.push_back(open[i]);
    }
    open = std::move(still_open);
  }
  for (auto& transcript : transcripts) {
    transcript.is_silence = detail::counts_as_silence(transcript, fallback);
    if (transcript.is_silence) transcript.text.clear();
  }
  return transcripts;
}

}  // namespace whisper
