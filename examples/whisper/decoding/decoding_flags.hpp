// SPDX-License-Identifier: MIT
// Defines the settings of decoding as command-line flags, with openai-whisper's names.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flag_effects.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/text/trimmed.hpp>
#include <looptorch/graph/captured_call.hpp>

#include "recognizer.hpp"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

struct DecodingFlags {
  std::string task = "transcribe", initial_prompt, suppress_tokens = "model";
  std::int64_t beam_size = 1, best_of = 5;
  double patience = 1, temperature = 0;
  std::optional<double> length_penalty{};
  bool fallback = true, capture = false;
  std::optional<bool> timestamps{};  ///< Off by default, unless times are needed.
  FallbackOptions thresholds{};

  /// True if decoding takes the best of several texts, from a beam or sampled.
  [[nodiscard]] bool chooses_texts() const {
    return beam_size > 1 || (best_of > 1 && (fallback || temperature > 0));
  }

  /// Sets the recognizer's decoding. With `capture` the model's weights must keep their places from then on.
  /// Throws CommandLineError for a bad list of tokens, GenerationConfigError for what the model cannot do.
  void apply(Recognizer& recognizer) const;
};

namespace detail {

/// Returns the ids of a list such as "1,2,7", each below `vocabulary`.
inline std::vector<std::int64_t> parse_ids(std::string_view list, std::int64_t vocabulary) try {
  std::vector<std::int64_t> ids;
  for (;;) {
    const auto word = list.substr(0, list.find(','));
    ids.push_back(looptorch::app::parse_number<std::int64_t>(
        std::string(word), {.min = 0, .max = static_cast<double>(vocabulary - 1)}));
    if (word.size() == list.size()) return ids;
    list.remove_prefix(word.size() + 1);
  }
} catch (const looptorch::app::CommandLineError& error) {
  throw looptorch::app::CommandLineError(std::string("--suppress-tokens: ") + error.what());
}

/// Returns the temperatures from the first one up to 1, 0.2 apart.
inline std::vector<double> temperatures_from(double first) {
  std::vector<double> all;
  for (int step = 0; first + 0.2 * step <= 1 + 1e-6; ++step) all.push_back(first + 0.2 * step);
  return all;
}

}  // namespace detail

inline void DecodingFlags::apply(Recognizer& recognizer) const {
  if (std::nearbyint(patience * static_cast<double>(beam_size)) < 1)
    throw looptorch::app::CommandLineError(
        looptorch::message("--patience: ", patience, " times ", beam_size, " texts is less than one"));
  auto chances = thresholds;
  chances.temperatures = fallback ? detail::temperatures_from(temperature) : std::vector{temperature};
  use_fallback(recognizer, std::move(chances));
  auto& decoding = recognizer.decoding;
  decoding.beam_size = beam_size, decoding.best_of = best_of, decoding.patience = patience;
  decoding.length_penalty = length_penalty, decoding.without_timestamps = !timestamps.value_or(false);
  recognizer.task = task == "translate" ? Task::translate : Task::transcribe;
  set_prompt(decoding, recognizer.language, recognizer.task);
  if (suppress_tokens != "model" && suppress_tokens != "-1") {
    const auto vocabulary = recognizer.model->config().vocab_size;
    decoding.suppress.clear();
    if (suppress_tokens != "none") decoding.suppress = detail::parse_ids(suppress_tokens, vocabulary);
  }
  if (const auto text = looptorch::trimmed(initial_prompt); !text.empty() && text != "None")
    decoding.previous = recognizer.tokenizer.encode(" " + std::string(text));
  if (!capture) return;
  if (const auto device = recognizer.options().device(); looptorch::CapturedCall::is_supported(device))
    recognizer.token_graphs = std::make_shared<TokenGraphs>(recognizer.model->decoder());
  else
    std::cerr << "--capture has no effect on " << device << ", which has no graphs" << std::endl;
}

/// Adds the flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, DecodingFlags& options) {
  line.choice("task", options.task, {"transcribe", "translate"},
              "translate: into English, by multilingual models");
  line.option("beam-size", "N", options.beam_size, "texts followed at once at temperature 0; 1: greedily",
              {.min = 1, .max = 100});
  line.option("patience", "X", options.patience, "the beam ends with N times X texts",
              {.max = 100, .above = 0});
  line.option("length-penalty", "ALPHA", options.length_penalty,
              "of a beam's texts, 0 to 1; else the mean log-probability decides", {.min = 0, .max = 1});
  line.option("temperature", "T", options.temperature, "of the first decoding; above 0 texts are drawn",
              {.min = 0, .max = 1});
  line.option("best-of", "N", options.best_of,
              "texts drawn at a temperature above 0, of which the best is taken", {.min = 1, .max = 100});
  line.toggle(
      "fallback", options.fallback,
      "decodes a text that repeats itself or is unsure again, at temperatures up to 1 in steps of 0.2");
  line.option("compression-ratio-threshold", "X", options.thresholds.compression_ratio,
              "a text that zlib compresses better repeats itself", {.above = 0});
  line.option("logprob-threshold", "X", options.thresholds.log_probability,
              "a text with a lower mean log-probability is unsure", {.max = 0});
  line.option("no-speech-threshold", "P", options.thresholds.no_speech,
              "an unsure text with a higher probability of no speech is left empty", {.min = 0, .max = 1});
  line.option("initial-prompt", "TEXT", options.initial_prompt,
              "read as what was said before: names and spellings to prefer; None: nothing");
  line.option("suppress-tokens", "IDS", options.suppress_tokens,
              "never written: ids with commas, none, or model or -1: those of generation_config.json");
  line.toggle(
      "timestamps", options.timestamps,
      "decodes timestamps, too, which the text leaves out; by default in files longer than a window, and "
      "where times are written");
  line.toggle("capture", options.capture, "runs each token as one CUDA graph, after a clip's first");
  require_effect(
      line, {"patience"}, [&options] { return options.beam_size > 1; }, "without --beam-size");
  require_effect(
      line, {"length-penalty"}, [&options] { return options.chooses_texts(); },
      "where one text is decoded: give --beam-size, or --best-of with --fallback or --temperature");
}

}  // namespace whisper
