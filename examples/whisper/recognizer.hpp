// SPDX-License-Identifier: MIT
// A model's folder as one object that turns log-mel frames into text.
//
// Shapes: B batch, M mel bins, T mel frames.
#pragma once

#include <looptorch/base/utf8.hpp>
#include <looptorch/loop/evaluation.hpp>

#include "decoding.hpp"
#include "generation.hpp"
#include "pretrained.hpp"
#include "tokenizer_folder.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

namespace detail {

/// Returns `bytes` without an incomplete character at the end.
inline std::string_view whole_characters(std::string_view bytes) {
  constexpr std::size_t kLongestPart = 3;
  for (std::size_t part = 1; part <= std::min(kLongestPart, bytes.size()); ++part) {
    const auto begin = bytes.size() - part;
    const auto step = looptorch::utf8_step(bytes, begin);
    const bool is_part = !step.valid && step.size == part &&
                         static_cast<unsigned char>(bytes[begin]) >= 0xC2 &&
                         static_cast<unsigned char>(bytes[begin]) <= 0xF4;
    if (is_part) return bytes.substr(0, begin);
  }
  return bytes;
}

}  // namespace detail

/// Model, tokenizer and decoding settings of one folder.
struct Recognizer {
  Whisper model;
  Tokenizer tokenizer;
  DecodingOptions decoding;

  /// Returns the transcript of each row of `mel_BMT`, by greedy decoding in eval mode. A text ends where the
  /// model ends it, where the model's positions end, or where it repeats itself (loop_begin). It never ends
  /// inside a character, of which a token may be a part.
  [[nodiscard]] std::vector<std::string> transcribe(const at::Tensor& mel_BMT) {
    const looptorch::EvalScope eval_scope(*model);
    std::vector<std::string> texts;
    const auto device = model->parameters().front().device();
    for (const auto& ids : decode_greedily(model, mel_BMT.to(device), decoding))
      texts.push_back(text_of(ids));
    return texts;
  }

  /// Returns the text of decoded ids, without the blank before its first word and without an incomplete
  /// character.
  [[nodiscard]] std::string text_of(const std::vector<std::int64_t>& ids) const {
    const auto bytes = tokenizer.bytes_of(ids);
    const auto text = looptorch::replace_invalid_utf8(detail::whole_characters(bytes));
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
  decoding.ends_loops = true;
  return {std::move(model), load_folder_tokenizer(folder), std::move(decoding)};
}

}  // namespace whisper
