// SPDX-License-Identifier: MIT
// Tables of the fillers that the English normaliser removes, and of the contractions and titles that it
// expands, as in openai-whisper. Each entry costs one search of the text.
#pragma once

#include "text_patterns.hpp"

#include <string>
#include <string_view>

namespace whisper::detail {

inline constexpr std::string_view kFillers[] = {"hmm", "mm", "mhm", "mmm", "uh", "um"};

struct Phrase {
  std::string_view written, spoken;
};

/// Whole words, in the order in which they are replaced.
inline constexpr Phrase kWholePhrases[] = {
    {"won't", "will not"},      {"can't", "can not"},      {"let's", "let us"},      {"ain't", "aint"},
    {"y'all", "you all"},       {"wanna", "want to"},      {"gotta", "got to"},      {"gonna", "going to"},
    {"i'ma", "i am going to"},  {"imma", "i am going to"}, {"woulda", "would have"}, {"coulda", "could have"},
    {"shoulda", "should have"}, {"ma'am", "madam"},        {"mr", "mister "},        {"mrs", "missus "},
    {"st", "saint "},           {"dr", "doctor "},         {"prof", "professor "},   {"capt", "captain "},
    {"gov", "governor "},       {"ald", "alderman "},      {"gen", "general "},      {"sen", "senator "},
    {"rep", "representative "}, {"pres", "president "},    {"rev", "reverend "},     {"hon", "honorable "},
    {"asst", "assistant "},     {"assoc", "associate "},   {"lt", "lieutenant "},    {"col", "colonel "},
    {"jr", "junior "},          {"sr", "senior "},         {"esq", "esquire "}};

/// Ends of words, replaced after the whole words; the longer ones first.
inline constexpr Phrase kPhraseEnds[] = {{"'d been", " had been"},
                                         {"'s been", " has been"},
                                         {"'d gone", " had gone"},
                                         {"'s gone", " has gone"},
                                         {"'d done", " had done"},
                                         {"'s got", " has got"},
                                         {"n't", " not"},
                                         {"'re", " are"},
                                         {"'s", " is"},
                                         {"'d", " would"},
                                         {"'ll", " will"},
                                         {"'t", " not"},
                                         {"'ve", " have"},
                                         {"'m", " am"}};

inline void drop_fillers(std::string& text) {
  for (const auto filler : kFillers) replace_all(text, filler, "", Bounded::at_both_ends);
}

inline void write_out_phrases(std::string& text) {
  for (const auto& [written, spoken] : kWholePhrases)
    replace_all(text, written, spoken, Bounded::at_both_ends);
  for (const auto& [written, spoken] : kPhraseEnds) replace_all(text, written, spoken, Bounded::at_end);
}

}  // namespace whisper::detail
