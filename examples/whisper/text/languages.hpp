// SPDX-License-Identifier: MIT
// Lists the languages of Whisper, and finds a language's code by the names and codes that openai-whisper
// accepts, such as "English" or "en", in upper or lower case.
#pragma once

#include <looptorch/app/command_line.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace whisper {

namespace detail {

/// Codes, each followed by a name. Some have several names.
inline constexpr std::string_view kLanguages[] = {
    "en", "english",        "zh",  "chinese",     "de", "german",        "es",  "spanish",
    "ru", "russian",        "ko",  "korean",      "fr", "french",        "ja",  "japanese",
    "pt", "portuguese",     "tr",  "turkish",     "pl", "polish",        "ca",  "catalan",
    "nl", "dutch",          "ar",  "arabic",      "sv", "swedish",       "it",  "italian",
    "id", "indonesian",     "hi",  "hindi",       "fi", "finnish",       "vi",  "vietnamese",
    "he", "hebrew",         "uk",  "ukrainian",   "el", "greek",         "ms",  "malay",
    "cs", "czech",          "ro",  "romanian",    "da", "danish",        "hu",  "hungarian",
    "ta", "tamil",          "no",  "norwegian",   "th", "thai",          "ur",  "urdu",
    "hr", "croatian",       "bg",  "bulgarian",   "lt", "lithuanian",    "la",  "latin",
    "mi", "maori",          "ml",  "malayalam",   "cy", "welsh",         "sk",  "slovak",
    "te", "telugu",         "fa",  "persian",     "lv", "latvian",       "bn",  "bengali",
    "sr", "serbian",        "az",  "azerbaijani", "sl", "slovenian",     "kn",  "kannada",
    "et", "estonian",       "mk",  "macedonian",  "br", "breton",        "eu",  "basque",
    "is", "icelandic",      "hy",  "armenian",    "ne", "nepali",        "mn",  "mongolian",
    "bs", "bosnian",        "kk",  "kazakh",      "sq", "albanian",      "sw",  "swahili",
    "gl", "galician",       "mr",  "marathi",     "pa", "punjabi",       "si",  "sinhala",
    "km", "khmer",          "sn",  "shona",       "yo", "yoruba",        "so",  "somali",
    "af", "afrikaans",      "oc",  "occitan",     "ka", "georgian",      "be",  "belarusian",
    "tg", "tajik",          "sd",  "sindhi",      "gu", "gujarati",      "am",  "amharic",
    "yi", "yiddish",        "lo",  "lao",         "uz", "uzbek",         "fo",  "faroese",
    "ht", "haitian creole", "ps",  "pashto",      "tk", "turkmen",       "nn",  "nynorsk",
    "mt", "maltese",        "sa",  "sanskrit",    "lb", "luxembourgish", "my",  "myanmar",
    "bo", "tibetan",        "tl",  "tagalog",     "mg", "malagasy",      "as",  "assamese",
    "tt", "tatar",          "haw", "hawaiian",    "ln", "lingala",       "ha",  "hausa",
    "ba", "bashkir",        "jw",  "javanese",    "su", "sundanese",     "yue", "cantonese",
    "my", "burmese",        "ca",  "valencian",   "nl", "flemish",       "ht",  "haitian",
    "lb", "letzeburgesch",  "ps",  "pushto",      "pa", "panjabi",       "ro",  "moldavian",
    "ro", "moldovan",       "si",  "sinhalese",   "es", "castilian",     "zh",  "mandarin"};

}  // namespace detail

/// Returns the code of a language, given its code or English name in any case; empty if it is none of
/// Whisper's languages.
[[nodiscard]] inline std::string code_of_language(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (std::size_t i = 0; i < std::size(detail::kLanguages); i += 2)
    if (text == detail::kLanguages[i] || text == detail::kLanguages[i + 1])
      return std::string(detail::kLanguages[i]);
  return {};
}

/// Replaces the name of a language, given to a flag, by its code as the command line is parsed. Leaves
/// unknown names, which the model may know.
inline void accept_language_name(looptorch::app::CommandLine& line, std::string& language) {
  line.on_parsed([&language](const looptorch::app::CommandLine&) {
    if (auto code = code_of_language(language); !code.empty()) language = std::move(code);
  });
}

}  // namespace whisper
