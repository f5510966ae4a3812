// SPDX-License-Identifier: MIT
// Finds the time of each word in a transcribed window from the decoder's attention to the sound, as
// openai-whisper's `find_alignment` does. Only some attention heads follow the speech; they are known for
// each published model.
//
// Shapes: L tokens, H alignment heads, S encoder positions of 20 ms, D width of the model, V vocabulary.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "../decoding/generation_config.hpp"
#include "../decoding/prompt.hpp"
#include "../model/model.hpp"
#include "time_warping.hpp"
#include "word_split.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Heads of the decoder's cross attention, by layer.
using AlignmentHeads = std::map<std::int64_t, std::vector<std::int64_t>>;

/// A word and its time, in seconds from the window's beginning.
struct AlignedWord {
  std::string text;
  std::vector<std::int64_t> tokens;
  double start = 0, end = 0, probability = 0;
};

/// Returns the `alignment_heads` of a folder's generation_config.json, or all heads of the last half of the
/// layers, as openai-whisper does for unknown models. Throws GenerationConfigError for a head that the model
/// does not have, and looptorch::FileError.
inline AlignmentHeads load_alignment_heads(const std::filesystem::path& folder, const WhisperConfig& config) {
  const auto file = folder / "generation_config.json";
  const auto json = std::filesystem::exists(file) ? looptorch::load_json(file) : looptorch::Json::object();
  const auto layers = config.decoder_layers, heads = config.decoder_attention_heads;
  AlignmentHeads chosen;
  const auto listed = json.get("alignment_heads", nullptr);
  if (listed.is_null()) {
    for (std::int64_t layer = layers / 2; layer < layers; ++layer)
      for (std::int64_t head = 0; head < heads; ++head) chosen[layer].push_back(head);
    return chosen;
  }
  try {
    for (const auto& pair : listed.as_array()) {
      const auto layer = pair.at(std::size_t{0}).as_int(), head = pair.at(std::size_t{1}).as_int();
      if (layer < 0 || layer >= layers || head < 0 || head >= heads)
        throw GenerationConfigError(looptorch::message("alignment head [", layer, ", ", head, "] of ", layers,
                                                       " layers with ", heads, " heads"));
      chosen[layer].push_back(head);
    }
    if (chosen.empty()) throw GenerationConfigError("\"alignment_heads\" is empty");
  } catch (const looptorch::Error& error) {
    throw GenerationConfigError(file.string() + ": " + error.what());
  }
  return chosen;
}

namespace detail {

inline constexpr std::int64_t kMedianWidth = 7;

/// Adds the running median of `row` to `sums`, `size` values each. Mirrors the row beyond its ends.
inline void add_median(const float* row, std::int64_t size, float* sums) {
  constexpr auto kReach = kMedianWidth / 2;
  const auto mirrored = [&](std::int64_t at) { return at < 0 ? -at : at < size ? at : 2 * (size - 1) - at; };
  for (std::int64_t at = 0; at < size; ++at) {
    if (size <= kReach) {
      sums[at] += row[at];
      continue;
    }
    std::array<float, kMedianWidth> around;
    for (std::int64_t i = 0; i < kMedianWidth; ++i)
      around[static_cast<std::size_t>(i)] = row[mirrored(at + i - kReach)];
    std::nth_element(around.begin(), around.begin() + kReach, around.end());
    sums[at] += around[kReach];
  }
}

/// Returns `[L, S]`, the mean over the heads of `weights_HLS` (float32 on the CPU), after each was smoothed
/// by a running median.
inline at::Tensor mean_of_medians(const at::Tensor& weights_HLS) {
  const auto heads = weights_HLS.size(0), tokens = weights_HLS.size(1), positions = weights_HLS.size(2);
  const auto whole_HLS = weights_HLS.contiguous();
  const auto sums_LS = at::zeros({tokens, positions}, at::kFloat);
  const auto* rows = whole_HLS.const_data_ptr<float>();
  auto* sums = sums_LS.mutable_data_ptr<float>();
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t token = 0; token < tokens; ++token)
      add_median(rows + (head * tokens + token) * positions, positions, sums + token * positions);
  return sums_LS / static_cast<double>(heads);
}

/// Returns the normalised attention of one head, `[L, S]`: a softmax over the positions, after which each
/// position gets mean 0 and deviation 1 over the tokens.
inline at::Tensor normalised(const at::Tensor& scores_LS) {
  const auto weights_LS = at::softmax(scores_LS.to(at::kFloat), 1);
  const auto [deviation_1S, mean_1S] = at::std_mean(weights_LS, {0}, /*unbiased=*/false, /*keepdim=*/true);
  return ((weights_LS - mean_1S) / deviation_1S).cpu();
}

}  // namespace detail

/// Aligns texts with the windows they were decoded from.
class WordAligner {
 public:
  /// Keeps references to model and tokenizer.
  WordAligner(Whisper& model, const Tokenizer& tokenizer, AlignmentHeads heads)
      : model_(model), tokenizer_(tokenizer), heads_(std::move(heads)) {}

  /// Returns the words of `text` (ids below the end of text) in the window of `states_1SD`, of which the
  /// first `frames` mel frames are sound. `decoding` holds the prompt without timestamps. Empty if `text` is.
  [[nodiscard]] std::vector<AlignedWord> operator()(const std::vector<std::int64_t>& text,
                                                    const at::Tensor& states_1SD, std::int64_t frames,
                                                    const DecodingOptions& decoding,
                                                    const std::string& language) const {
    if (text.empty()) return {};
    torch::NoGradGuard no_grad;
    auto tokens = decoding.prompt;
    const auto first =
        static_cast<std::int64_t>(tokens.size()) - 1;  // no-timestamps, which predicts the text
    tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.push_back(decoding.end_of_text);
    const auto device = states_1SD.device();
    const auto tokens_1L = torch::tensor(tokens, at::kLong).to(device).unsqueeze(0);
    const auto positions = std::max<std::int64_t>(1, std::min(frames / 2, states_1SD.size(1)));
    std::vector<at::Tensor> weights;
    const auto outputs_1LD = model_->decoder()->forward_watched(
        tokens_1L, states_1SD, [&](std::int64_t layer, const at::Tensor& scores_1HLS) {
          const auto found = heads_.find(layer);
          if (found == heads_.end()) return;
          for (const auto head : found->second)
            weights.push_back(detail::normalised(scores_1HLS[0][head].narrow(1, 0, positions)));
        });
    const auto matrix_LS = detail::mean_of_medians(at::stack(weights));
    const auto path = warp_times(matrix_LS.slice(0, first, -1).to(at::kDouble).neg().contiguous());
    return timed(text, start_times(path), probabilities(outputs_1LD[0].slice(0, first, -2), text, decoding),
                 decoding, language);
  }

 private:
  /// Returns the time at which the path enters each token, in seconds.
  static std::vector<double> start_times(const std::vector<WarpedPoint>& path) {
    constexpr double kPositionsPerSecond = 50;
    std::vector<double> times;
    for (std::size_t i = 0; i < path.size(); ++i)
      if (i == 0 || path[i].token != path[i - 1].token)
        times.push_back(static_cast<double>(path[i].time) / kPositionsPerSecond);
    return times;
  }

  /// Returns the probability of each token of the text, among all text tokens.
  [[nodiscard]] std::vector<double> probabilities(const at::Tensor& outputs_LD,
                                                  const std::vector<std::int64_t>& text,
                                                  const DecodingOptions& decoding) const {
    const auto scores_LV = model_->decoder()->logits(outputs_LD).slice(1, 0, decoding.end_of_text);
    const auto ids_L1 = torch::tensor(text, at::kLong).to(outputs_LD.device()).unsqueeze(1);
    const auto chosen =
        at::softmax(scores_LV.to(at::kFloat), 1).gather(1, ids_L1).to(at::kDouble).cpu().contiguous();
    return {chosen.const_data_ptr<double>(), chosen.const_data_ptr<double>() + chosen.numel()};
  }

  [[nodiscard]] std::vector<AlignedWord> timed(std::vector<std::int64_t> text,
                                               const std::vector<double>& starts,
                                               const std::vector<double>& probabilities,
                                               const DecodingOptions& decoding,
                                               const std::string& language) const {
    text.push_back(decoding.end_of_text);
    auto split = split_words(tokenizer_, text, language, decoding.end_of_text);
    if (!split.empty()) split.pop_back();  // the end of text
    std::vector<AlignedWord> words;
    std::size_t begin = 0;
    for (auto& [word, tokens] : split) {
      const auto end = begin + tokens.size();
      double sum = 0;
      for (auto i = begin; i < end; ++i) sum += probabilities[i];
      words.push_back({std::move(word), std::move(tokens), starts[begin], starts[end],
                       sum / static_cast<double>(end - begin)});
      begin = end;
    }
    return words;
  }

  Whisper& model_;
  const Tokenizer& tokenizer_;
  AlignmentHeads heads_;
};

}  // namespace whisper
