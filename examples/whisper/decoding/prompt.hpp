// SPDX-License-Identifier: MIT
// The prompt of a decoding: the tokens before its text. They give the language of the speech, the task
// (transcribe or translate), and whether the text has times. Training begins its target texts with the same
// tokens.
#pragma once

#include <looptorch/base/error.hpp>

#include "../text/languages.hpp"
#include "decoding_options.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace whisper {

/// Thrown for a generation_config.json that is missing, malformed, or lacks the requested language. Names the
/// file.
struct GenerationConfigError : looptorch::Error {
  using Error::Error;
};

namespace detail {

inline int64_t language_id(const SpecialTokens& special, const std::string& language) {
  for (const auto& [code, id] : special.languages)
    if (code == language) return id;
  throw GenerationConfigError("the model does not know the language \"" + language + "\"");
}

}  // namespace detail

/// Returns the code of a language that the model knows, from openai-whisper's names ("English") or codes in
/// any case. English-only models take all of Whisper's languages, which only their normaliser uses. Throws
/// GenerationConfigError for another.
[[nodiscard]] inline std::string language_code(const SpecialTokens& special, const std::string& language) {
  const auto& known = special.languages;
  const auto is_known = [&](const std::string& text) {
    return std::any_of(known.begin(), known.end(), [&](const auto& each) { return each.first == text; });
  };
  if (is_known(language)) return language;
  const auto code = code_of_language(language);
  if (code.empty() && known.empty())
    throw GenerationConfigError("\"" + language +
                                "\" is no language of Whisper's: give its name or code, as German or de");
  if (!known.empty() && !is_known(code))
    throw GenerationConfigError("the model does not know the language \"" + language + "\"");
  return code;
}

/// The result's language: that of the speech, or English.
enum class Task { transcribe, translate };

/// Sets the prompt: start of transcript, then for multilingual models language and task, then no-timestamps
/// unless timestamps are wanted. Throws GenerationConfigError for a language or task that the model does not
/// know.
inline void set_prompt(DecodingOptions& options, const std::string& language, Task task = Task::transcribe) {
  const auto& special = options.special;
  options.prompt = {special.start};
  if (!special.languages.empty()) {
    options.prompt.push_back(detail::language_id(special, language));
    options.prompt.push_back(task == Task::translate ? special.translate : special.transcribe);
  }
  if (task == Task::translate && special.translate < 0)
    throw GenerationConfigError("the model cannot translate: it knows English only");
  if (options.without_timestamps) options.prompt.push_back(special.no_timestamps);
}

/// Returns `options` with the prompt of a transcription in `language`, or unchanged if `language` is empty.
/// Throws what set_prompt throws.
inline DecodingOptions decoding_in(DecodingOptions options, const std::string& language) {
  if (!language.empty()) set_prompt(options, language);
  return options;
}

}  // namespace whisper
