// SPDX-License-Identifier: MIT
// A model's folder as one thing that turns log-mel frames into text.
//
// Shapes: B batch, M mel bins, T mel frames.
#pragma once

#include "decoding.hpp"
#include "generation.hpp"
#include "pretrained.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Model, tokenizer and decoding settings of one folder.
struct Recognizer {
  Whisper model;
  Tokenizer tokenizer;
  DecodingOptions decoding;

  /// What is said in each row of `mel_BMT`, by greedy decoding in eval mode. A text has at most some 17
  /// tokens for each second of audio, twice what fast speech has: a model that repeats itself without end, as
  /// Whisper does on speech that it does not know, is cut short.
  [[nodiscard]] std::vector<std::string> transcribe(const at::Tensor& mel_BMT) {
    const bool was_training = model->is_training();
    model->eval();
    std::vector<std::string> texts;
    const auto device = model->parameters().front().device();
    for (const auto& ids : decode_greedily(model, mel_BMT.to(device), limited(mel_BMT.size(2))))
      texts.push_back(text_of(ids));
    model->train(was_training);
    return texts;
  }

 private:
  [[nodiscard]] DecodingOptions limited(std::int64_t frames) const {
    constexpr std::int64_t kFramesPerToken = 6;  // 100 frames are a second
    auto options = decoding;
    const auto prompt = static_cast<std::int64_t>(options.prompt.size());
    options.max_length = std::min(options.max_length, prompt + frames / kFramesPerToken + 1);
    return options;
  }

  [[nodiscard]] std::string text_of(const std::vector<std::int64_t>& ids) const {
    const auto text = tokenizer.decode(ids);
    const auto begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? std::string() : text.substr(begin);
  }
};

/// Loads a Hugging Face folder onto `device`. `language` matters to multilingual models only. Throws a
/// looptorch::Error that names the file at fault.
inline Recognizer load_recognizer(const std::filesystem::path& folder, at::Device device = at::kCPU,
                                  const std::string& language = "en") {
  auto model = load_pretrained(folder);
  model->to(device);
  auto decoding = load_decoding_options(folder, model->config(), language);
  return {std::move(model), load_tokenizer(folder / "tokenizer.json"), std::move(decoding)};
}

}  // namespace whisper
