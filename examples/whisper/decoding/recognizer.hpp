// SPDX-License-Identifier: MIT
// Defines Recognizer, which turns log-mel frames into text: a Whisper model with its tokenizer and decoding
// settings, loaded from a Hugging Face folder. The programs that train, transcribe and evaluate use it.
//
// Shapes: B batch, M mel bins, T mel frames, S encoder positions, D width of the model.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/loop/evaluation.hpp>

#include "../model/pretrained.hpp"
#include "../text/tokenizer_folder.hpp"
#include "fallback.hpp"
#include "generation_config.hpp"
#include "language_detection.hpp"
#include "prompt.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
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
  std::optional<FallbackOptions> fallback{};  ///< Without it each clip is decoded once.
  std::string language = "en";                ///< Language of clips that have none of their own.
  Task task = Task::transcribe;
  bool detects_language = false;
  looptorch::LoadReport weights{};              ///< How the file's names of weights were read.
  std::shared_ptr<TokenGraphs> token_graphs{};  ///< Without it a token's step runs eagerly.

  /// Returns the transcript of each row of `mel_BMT`, in eval mode. A text ends where the model ends it,
  /// where the model's positions end, or, without fallback, where it repeats itself (loop_begin). It never
  /// ends inside a character, even if a token is a part of one.
  [[nodiscard]] std::vector<std::string> transcribe(const at::Tensor& mel_BMT) {
    std::vector<std::string> texts;
    for (auto& transcript : decode(mel_BMT)) texts.push_back(std::move(transcript.text));
    return texts;
  }

  /// Decodes as `transcribe` does, and returns details of each decoding. `languages` holds each clip's
  /// language, empty for `language`, or is an empty list. Ignored with `detects_language`. Throws
  /// GenerationConfigError for a language that the model does not know.
  [[nodiscard]] std::vector<Transcript> decode(const at::Tensor& mel_BMT,
                                               const std::vector<std::string>& languages = {}) {
    return decode_states(encode(mel_BMT), languages);
  }

  /// Returns the encoder's states of `mel_BMT`, on the model's device and in its precision, in eval mode.
  [[nodiscard]] at::Tensor encode(const at::Tensor& mel_BMT) {
    const looptorch::EvalScope eval_scope(*model);
    torch::NoGradGuard no_grad;
    return model->encoder()(mel_BMT.to(options()));
  }

  /// Returns the device and type of the model.
  [[nodiscard]] at::TensorOptions options() { return model->encoder()->parameters().front().options(); }

  /// Returns what `decode` returns, from the encoder's states.
  [[nodiscard]] std::vector<Transcript> decode_states(const at::Tensor& states_BSD,
                                                      const std::vector<std::string>& languages = {}) {
    return decode_states(states_BSD, codes_of(states_BSD, languages), decoding);
  }

  /// Returns the transcripts of states, decoded with `options`, which may differ from `decoding` in the
  /// previous text. `codes` holds the language of each clip.
  [[nodiscard]] std::vector<Transcript> decode_states(const at::Tensor& states_BSD,
                                                      const std::vector<std::string>& codes,
                                                      const DecodingOptions& options) {
    const looptorch::EvalScope eval_scope(*model);
    torch::NoGradGuard no_grad;
    std::map<std::string, std::vector<std::int64_t>> clips;
    for (std::int64_t clip = 0; const auto& code : codes) clips[code].push_back(clip++);
    if (clips.size() == 1) return decode_in(codes.front(), states_BSD, options);
    std::vector<Transcript> transcripts(codes.size());
    for (const auto& [code, places] : clips) {
      auto some =
          decode_in(code, states_BSD.index_select(0, ScoreRules::ids(places, states_BSD.device())), options);
      for (std::size_t i = 0; i < places.size(); ++i)
        transcripts[static_cast<std::size_t>(places[i])] = std::move(some[i]);
    }
    return transcripts;
  }

  /// Returns each clip's language: detected, or from `languages`, or `language`.
  [[nodiscard]] std::vector<std::string> codes_of(const at::Tensor& states_BSD,
                                                  const std::vector<std::string>& languages = {}) {
    std::vector<std::string> codes(static_cast<std::size_t>(states_BSD.size(0)), language);
    if (detects_language) {
      const auto detected = detect_languages(model, states_BSD, decoding.special);
      for (std::size_t clip = 0; clip < codes.size(); ++clip) codes[clip] = detected[clip].code;
      return codes;
    }
    for (std::size_t clip = 0; clip < languages.size(); ++clip)
      if (!languages[clip].empty()) codes[clip] = languages[clip];
    return codes;
  }

  /// Makes the model decode timestamps, or leave them out.
  void use_timestamps(bool wanted) {
    decoding.without_timestamps = !wanted;
    set_prompt(decoding, language, task);
  }

  /// Returns the text of decoded ids, without timestamps, without the space before its first word and without
  /// an incomplete character.
  [[nodiscard]] std::string text_of(std::vector<std::int64_t> ids) const {
    if (const auto& special = decoding.special; special.no_timestamps >= 0)
      std::erase_if(ids, [&](std::int64_t id) { return id >= special.first_timestamp(); });
    const auto bytes = tokenizer.bytes_of(ids);
    const auto text = looptorch::replace_invalid_utf8(detail::whole_characters(bytes));
    const auto begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? std::string() : text.substr(begin);
  }

 private:
  std::vector<Transcript> decode_in(const std::string& code, const at::Tensor& states_BSD,
                                    DecodingOptions options) {
    if (detects_language || code != language) set_prompt(options, code, task);
    auto transcripts = decode_with_fallback(
        model, states_BSD, std::move(options), fallback.value_or(detail::once(decoding.temperature)),
        [this](const std::vector<std::int64_t>& ids) { return text_of(ids); }, token_graphs.get());
    for (auto& transcript : transcripts) transcript.language = code;
    return transcripts;
  }
};

namespace detail {

/// Throws GenerationConfigError if the tokenizer has another id for a special token than the settings, or is
/// English-only while the settings are multilingual.
inline void check_special_tokens(const Tokenizer& tokenizer, const DecodingOptions& decoding,
                                 std::int64_t vocabulary, const std::filesystem::path& folder) {
  const auto check = [&](const char* token, std::int64_t id, const char* file, const char* field) {
    const auto its_id = tokenizer.token_id(token);
    if (!its_id || *its_id == id) return;
    throw GenerationConfigError(looptorch::message((folder / file).string(), ": \"", field, "\" is ", id,
                                                   ", and \"", token, "\" of the tokenizer is ", *its_id));
  };
  check("<|endoftext|>", decoding.end_of_text, "config.json", "eos_token_id");
  check("<|startoftranscript|>", decoding.special.start, "config.json", "decoder_start_token_id");
  const char* const settings = "generation_config.json";
  check("<|notimestamps|>", decoding.special.no_timestamps, settings, "no_timestamps_token_id");
  if (decoding.special.languages.empty()) return;
  if (is_english_only(vocabulary, tokenizer.token_id("<|endoftext|>")) ||
      !tokenizer.token_id("<|transcribe|>"))
    throw GenerationConfigError((folder / settings).string() +
                                ": \"is_multilingual\" is true, and the tokenizer is English-only");
  check("<|transcribe|>", decoding.special.transcribe, settings, "task_to_id");
  if (decoding.special.translate >= 0)
    check("<|translate|>", decoding.special.translate, settings, "task_to_id");
  for (const auto& [code, id] : decoding.special.languages)
    check(("<|" + code + "|>").c_str(), id, settings, "lang_to_id");
}

}  // namespace detail

/// Loads a Hugging Face folder onto `device`, with weights in `dtype`. `language` is one that language_code
/// takes, or "auto" to detect each clip's. Throws a looptorch::Error that names the file at fault.
inline Recognizer load_recognizer(const std::filesystem::path& folder, at::Device device = at::kCPU,
                                  const std::string& language = "en", at::ScalarType dtype = at::kFloat) {
  const bool detects = language == "auto";
  looptorch::LoadReport weights;
  auto model = load_pretrained(folder, dtype, &weights);
  model->to(device);
  const auto described = described_by(folder);
  auto decoding = load_decoding_options(described, model->config(), detects ? "en" : language);
  decoding.ends_loops = true;
  auto tokenizer = load_folder_tokenizer(described);
  detail::check_special_tokens(tokenizer, decoding, model->config().vocab_size, described);
  auto code = detects ? "en" : language_code(decoding.special, language);
  return {.model = std::move(model),
          .tokenizer = std::move(tokenizer),
          .decoding = std::move(decoding),
          .language = std::move(code),
          .detects_language = detects,
          .weights = std::move(weights)};
}

/// Writes a line to `out` if the file's weights had other names than the model's.
inline void tell_renamed(const Recognizer& recognizer, const std::filesystem::path& folder,
                         std::ostream& out) {
  if (!recognizer.weights.renamed.empty())
    out << folder.string() << ": weights: " << recognizer.weights.text() << std::endl;
}

/// Makes the recognizer decode as openai-whisper's program does: at a higher temperature if a text repeats
/// itself or is unsure, with the best of 5 sampled texts and at most half of the model's positions.
inline void use_fallback(Recognizer& recognizer, FallbackOptions fallback = {}) {
  auto& decoding = recognizer.decoding;
  decoding.ends_loops = false;
  decoding.best_of = 5;
  decoding.max_new_tokens = decoding.max_length / 2;
  recognizer.fallback = std::move(fallback);
}

}  // namespace whisper
