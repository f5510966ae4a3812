// SPDX-License-Identifier: MIT
// Detects the spoken language: a multilingual Whisper begins each transcript with a token that names it.
//
// Shapes: B clips, S encoder positions, D width of the model, V vocabulary, N languages.
#pragma once

#include "../model/model.hpp"
#include "decoding_options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace whisper {

/// A detected language, such as "en".
struct DetectedLanguage {
  std::string code;
  double probability = 0;  ///< Among the languages that the model knows.
};

/// Returns the most probable language of each clip, as openai-whisper's `detect_language`: "en" with
/// probability 1 for a model that knows English only.
inline std::vector<DetectedLanguage> detect_languages(Whisper& model, const at::Tensor& states_BSD,
                                                      const SpecialTokens& special) {
  const auto clips = states_BSD.size(0);
  std::vector<DetectedLanguage> detected(static_cast<std::size_t>(clips), {"en", 1});
  if (special.languages.empty()) return detected;
  torch::NoGradGuard no_grad;
  std::vector<int64_t> ids;
  for (const auto& [code, id] : special.languages) ids.push_back(id);
  const auto ids_N = torch::tensor(ids, at::kLong).to(states_BSD.device());
  const auto start_B1 = at::full({clips, 1}, special.start, ids_N.options());
  auto& decoder = model->decoder();
  const auto scores_BV = decoder->logits(decoder(start_B1, states_BSD).select(1, 0));
  const auto probabilities_BN = at::softmax(scores_BV.index_select(1, ids_N).to(at::kFloat), 1);
  const auto [probability_B, index_B] = probabilities_BN.cpu().max(1);
  for (int64_t clip = 0; clip < clips; ++clip)
    detected[static_cast<std::size_t>(clip)] = {
        special.languages[static_cast<std::size_t>(index_B[clip].item<int64_t>())].first,
        probability_B[clip].item<double>()};
  return detected;
}

}  // namespace whisper
