// SPDX-License-Identifier: MIT
// Decodes texts from the encoder's states with a key-value cache: greedily, by sampling, or by a beam. Gives
// the ids of openai-whisper's `decode`; greedy ids are also those of transformers'
// `generate(do_sample=False)`. A clip leaves the batch when it is finished, so that it costs nothing from
// then on.
//
// Shapes: B clips, S encoder positions, D width of the model, R rows (unfinished texts), L tokens, V
// vocabulary.
#pragma once

#include <looptorch/base/error.hpp>

#include "../model/model.hpp"
#include "beam_search.hpp"
#include "decoding_options.hpp"
#include "score_rules.hpp"
#include "token_choice.hpp"
#include "token_graphs.hpp"
#include "token_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace whisper {

/// The tokens of a clip, without prompt and end of text, and how sure the model is of them.
struct DecodedText {
  std::vector<int64_t> tokens;
  double average_log_probability = 0;  ///< By token, the end counted as one.
  double no_speech_probability = 0;    ///< 0 for a model without such a token.
};

namespace detail {

/// Returns the best text: by the mean of its log-probabilities, or by their sum over `length_penalty`'s
/// length.
inline FoundText best_text(std::vector<FoundText> found, const DecodingOptions& options) {
  const auto score = [&](const FoundText& text) {
    const auto length = static_cast<double>(std::max<std::size_t>(text.tokens.size(), 1));
    const auto alpha = options.length_penalty;
    return text.log_probability / (alpha ? std::pow((5 + length) / 6, *alpha) : length);
  };
  return std::move(*std::max_element(found.begin(), found.end(),
                                     [&](const auto& a, const auto& b) { return score(a) < score(b); }));
}

/// Returns each clip's probability of no speech, from the scores after the start token.
inline std::vector<double> no_speech_probabilities(const at::Tensor& scores_BV, int64_t no_speech) {
  const auto probabilities =
      at::softmax(scores_BV.to(at::kFloat), 1).select(1, no_speech).to(at::kDouble).cpu().contiguous();
  const auto* first = probabilities.const_data_ptr<double>();
  return {first, first + probabilities.numel()};
}

inline void check_decoding(const DecodingOptions& options) {
  TORCH_CHECK(!options.prompt.empty(), "decode: the prompt is empty");
  TORCH_CHECK(options.beam_size >= 1 && options.best_of >= 1, "decode: beam_size ", options.beam_size,
              " and best_of ", options.best_of, " must be at least 1");
  TORCH_CHECK(options.beam_size == 1 ||
                  std::nearbyint(options.patience * static_cast<double>(options.beam_size)) >= 1,
              "decode: a patience of ", options.patience, " ends the search before it has a text");
  TORCH_CHECK(options.previous.empty() || options.special.previous >= 0,
              "decode: the model has no token for the start of previous text");
}

/// Returns the scores after the tokens of `step`, `[R, V]` in fp32.
inline at::Tensor scores_after(const SearchStep& step, const StepInputs& inputs, Decoder& decoder,
                               const at::Tensor& states_BSD, DecoderCache& cache) {
  if (!counts_up(step.parents, cache.rows())) cache.select_rows(inputs.parents_R());
  if (!counts_up(step.clips, cache.clips()))
    cache.select_clips(ScoreRules::ids(step.clips, states_BSD.device()));
  const auto outputs_R1D = decoder->extend(inputs.tokens_R1(), states_BSD, cache);
  return decoder->logits(outputs_R1D.select(1, -1)).to(at::kFloat);
}

/// Returns the inputs of the search's rows for the next choice, after the tokens of `step` or, without any,
/// after the prompt.
template <class Search>
std::vector<RowInputs> inputs_of(const SearchStep& step, Search& search, const ScoreRules& rules,
                                 double temperature) {
  std::vector<RowInputs> rows;
  for (const auto& text : search.texts()) {
    const auto row = rows.size();
    rows.push_back(
        {.first = rules.first_allowed(text), .number = search.draw(row), .temperature = temperature});
    if (!step.tokens.empty()) rows[row].token = step.tokens[row], rows[row].parent = step.parents[row];
  }
  return rows;
}

/// Returns the scores after the prompt, `[rows, V]` in fp32. Each clip's scores are repeated for all of its
/// rows. Sets each clip's probability of no speech if the model has a token for it.
inline at::Tensor first_scores(const DecodingOptions& options, const at::Tensor& states_BSD, int64_t rows,
                               Decoder& decoder, DecoderCache& cache, std::vector<double>& no_speech) {
  const auto clips = states_BSD.size(0);
  const auto first = options.first_tokens();
  const auto tokens_BL = ScoreRules::ids(first, states_BSD.device()).expand({clips, -1});
  const auto outputs_BLD = decoder->extend(tokens_BL, states_BSD, cache);
  auto scores_RV = decoder->logits(outputs_BLD.select(1, -1)).to(at::kFloat);
  if (rows > clips) scores_RV = scores_RV.repeat_interleave(rows / clips, 0);
  if (options.special.no_speech >= 0) {
    const auto start = static_cast<int64_t>(first.size() - options.prompt.size());
    no_speech =
        no_speech_probabilities(decoder->logits(outputs_BLD.select(1, start)), options.special.no_speech);
  }
  return scores_RV;
}

/// Returns the best text of each clip.
inline std::vector<DecodedText> decoded_of(std::vector<std::vector<FoundText>> found,
                                           const DecodingOptions& options,
                                           const std::vector<double>& no_speech) {
  std::vector<DecodedText> decoded;
  for (std::size_t clip = 0; clip < found.size(); ++clip) {
    auto text = best_text(std::move(found[clip]), options);
    const auto average = text.log_probability / static_cast<double>(text.tokens.size() + 1);
    decoded.push_back({std::move(text.tokens), average, no_speech[clip]});
  }
  return decoded;
}

template <class Search>
std::vector<DecodedText> run_search(Whisper& model, const at::Tensor& states_BSD,
                                    const DecodingOptions& options, TokenGraphs* graphs) {
  const auto device = states_BSD.device();
  const auto clips = states_BSD.size(0);
  const auto room = std::min(
      std::min(options.max_length, model->config().max_target_positions) - std::ssize(options.first_tokens()),
      options.max_new_tokens);
  const TokenChoice choice(options, device);
  Search search(clips, options);
  DecoderCache cache;
  std::vector<double> no_speech(static_cast<std::size_t>(clips));
  auto& decoder = model->decoder();
  SearchStep step;
  for (int64_t produced = 0; produced < room; ++produced) {
    const bool begins = produced == 0;
    auto rows = inputs_of(step, search, choice.rules(), options.temperature);
    at::Tensor chosen;
    if (!begins && graphs) {
      chosen = graphs->next(step, rows, choice, cache);
    } else {
      const StepInputs inputs{StepInputs::view(rows).to(device, /*non_blocking=*/true)};
      const auto scores_RV =
          begins ? first_scores(options, states_BSD, std::ssize(rows), decoder, cache, no_speech)
                 : scores_after(step, inputs, decoder, states_BSD, cache);
      chosen = choice(scores_RV, inputs, begins).cpu();
    }
    step = search.advance(chosen);
    if (step.tokens.empty()) break;
  }
  return decoded_of(std::move(search).take(), options, no_speech);
}

}  // namespace detail

/// Returns one text for each clip of the encoder's states: sampled at a temperature above 0, else by a beam
/// if `beam_size` is above 1, else greedily. Waits for the device once a token. If `graphs` are given, they
/// run the steps of tokens; they must be of the same model.
inline std::vector<DecodedText> decode(Whisper& model, const at::Tensor& states_BSD,
                                       const DecodingOptions& options, TokenGraphs* graphs = nullptr) {
  detail::check_decoding(options);
  torch::NoGradGuard no_grad;
  if (options.uses_beam()) return detail::run_search<BeamTexts>(model, states_BSD, options, graphs);
  return detail::run_search<SampledTexts>(model, states_BSD, options, graphs);
}

}  // namespace whisper
