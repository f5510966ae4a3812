// SPDX-License-Identifier: MIT
// Chooses how texts are normalised before word error rates are computed: as the flag --normalizer says, or
// else as suits the language.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/unicode/composed_form.hpp>
#include <looptorch/metrics/normalize.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include "english/english_normalizer.hpp"

#include <string>
#include <string_view>

namespace whisper {

/// The normalisation of both texts before their words are compared.
struct Normalizer {
  std::string name;
  std::string (*apply)(std::string_view);
};

namespace detail {

/// True for the languages that are written without spaces between words.
inline bool writes_without_spaces(const std::string& language) {
  for (const auto* code : {"zh", "yue", "ja", "th", "lo", "my"})
    if (language == code) return true;
  return false;
}

/// Returns the normalised text, in which canonically equivalent spellings are equal.
inline std::string normalize_marks(std::string_view text) {
  return looptorch::normalize_text(looptorch::composed_form(text));
}

/// Returns the normalised text with a space after each character (as readers count them), so that words are
/// characters.
inline std::string spaced_characters(std::string_view text) {
  std::string spaced;
  const auto normalized = normalize_marks(text);
  for (const auto character : looptorch::grapheme_clusters(normalized))
    if (character != " ") spaced.append(spaced.empty() ? "" : " ").append(character);
  return spaced;
}

}  // namespace detail

/// Returns a normaliser by name. `english` is Whisper's own, as in the literature: numbers, contractions and
/// British spellings become uniform. `marks` is lower case without punctuation, with the combining marks that
/// Whisper's normaliser for other languages removes, such as Devanagari's vowel signs. `characters` is
/// `marks` with every character a word, so that the word error rate is one of characters. `none` leaves texts
/// unchanged. `auto` is `english` for the language "en", `characters` for Chinese, Cantonese, Japanese, Thai,
/// Lao and Burmese, else `marks`. Throws CommandLineError for another name.
inline Normalizer choose_normalizer(const std::string& name, const std::string& language) {
  if (name == "auto" && detail::writes_without_spaces(language))
    return choose_normalizer("characters", language);
  if (name == "auto") return choose_normalizer(language == "en" ? "english" : "marks", language);
  if (name == "english") return {name, normalize_english};
  if (name == "marks") return {name, detail::normalize_marks};
  if (name == "characters") return {name, detail::spaced_characters};
  if (name == "none") return {name, [](std::string_view text) { return std::string(text); }};
  throw looptorch::app::CommandLineError(
      looptorch::message("--normalizer: \"", name, "\" is not auto, english, marks, characters or none"));
}

}  // namespace whisper
