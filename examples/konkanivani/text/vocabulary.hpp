// SPDX-License-Identifier: MIT
// The vocabulary of a model: the characters of the training texts, in Devanagari or Latin script, and their
// ids. A character is a code point or, on request, a grapheme cluster, which readers perceive as one
// character (Devanagari has hundreds of clusters). Texts are normalised first: normal form C, lower case, no
// punctuation, single spaces, vowel signs kept. Saved as JSON beside the model.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/unicode/composed_form.hpp>
#include <looptorch/metrics/normalize.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace konkanivani {

/// Thrown for texts without characters, and for a file that is no vocabulary.
struct VocabularyError : looptorch::Error {
  using Error::Error;
};

/// Special ids. CTC's targets contain only characters.
inline constexpr std::int64_t kPad = 0, kBlank = 1, kStart = 2, kEnd = 3, kUnknown = 4, kFirstCharacter = 5;

enum class Unit { code_point, grapheme };

/// Returns a text in the normalised spelling that all other functions use: normal form C, then
/// looptorch::normalize_text.
[[nodiscard]] inline std::string normalize(std::string_view text) {
  return looptorch::normalize_text(looptorch::composed_form(text));
}

/// Counts characters that occurred and are not in the vocabulary.
class UnknownCharacters {
 public:
  void add(std::string_view character) { ++counts_[std::string(character)]; }
  [[nodiscard]] bool empty() const { return counts_.empty(); }
  [[nodiscard]] std::int64_t total() const;
  [[nodiscard]] const std::map<std::string, std::int64_t>& counts() const { return counts_; }

  /// Returns "3 characters outside the vocabulary, read as unknown: ऋ (2), q (1)", the frequent ones first;
  /// empty if there are none.
  [[nodiscard]] std::string describe() const;

 private:
  std::map<std::string, std::int64_t> counts_;
};

class Vocabulary {
 public:
  /// Returns the vocabulary of `texts`, ordered by the characters' bytes, so that the order of the texts does
  /// not matter. Throws VocabularyError if there are no characters.
  [[nodiscard]] static Vocabulary of(std::span<const std::string> texts, Unit unit);

  /// Returns the number of ids, special ones included.
  [[nodiscard]] std::int64_t size() const {
    return kFirstCharacter + static_cast<std::int64_t>(characters_.size());
  }
  [[nodiscard]] Unit unit() const { return unit_; }
  [[nodiscard]] const std::vector<std::string>& characters() const { return characters_; }

  /// Returns the ids of a text, after normalising it. Maps a character outside the vocabulary to kUnknown,
  /// and counts it.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text, UnknownCharacters& unknown) const;

  /// Returns the text of ids, special ones left out. Normalises it: ids may have several spaces in a row.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;

  [[nodiscard]] looptorch::Json to_json() const;
  /// Reads a vocabulary; errors call it `where`. Throws VocabularyError.
  [[nodiscard]] static Vocabulary from_json(const looptorch::Json& json, std::string_view where);

  friend bool operator==(const Vocabulary& a, const Vocabulary& b) {
    return a.unit_ == b.unit_ && a.characters_ == b.characters_;
  }

 private:
  Vocabulary(std::vector<std::string> characters, Unit unit)
      : unit_(unit), characters_(std::move(characters)) {
    for (const auto& character : characters_)
      ids_.emplace(character, kFirstCharacter + static_cast<std::int64_t>(ids_.size()));
  }

  [[nodiscard]] static std::vector<std::string_view> cut(std::string_view text, Unit unit) {
    return unit == Unit::code_point ? looptorch::code_points(text) : looptorch::grapheme_clusters(text);
  }

  Unit unit_;
  std::vector<std::string> characters_;
  std::map<std::string, std::int64_t, std::less<>> ids_;
};

inline void save_vocabulary(const std::filesystem::path& path, const Vocabulary& vocabulary) {
  looptorch::write_file_atomically(path, vocabulary.to_json().dump(2) + "\n");
}

/// Loads a vocabulary. Throws FileError, or VocabularyError that names the file.
[[nodiscard]] inline Vocabulary load_vocabulary(const std::filesystem::path& path) {
  try {
    return Vocabulary::from_json(looptorch::load_json(path), path.string());
  } catch (const looptorch::JsonError& error) {
    throw VocabularyError(error.what());
  }
}

// ---- Implementation ----

inline std::int64_t UnknownCharacters::total() const {
  std::int64_t total = 0;
  for (const auto& [character, count] : counts_) total += count;
  return total;
}

inline std::string UnknownCharacters::describe() const {
  if (empty()) return {};
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts_.begin(), counts_.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string list;
  for (const auto& [character, count] : sorted)
    list += looptorch::message(list.empty() ? "" : ", ", character, " (", count, ")");
  const auto all = total();
  return looptorch::message(all, all == 1 ? " character" : " characters",
                            " outside the vocabulary, read as unknown: ", list);
}

inline Vocabulary Vocabulary::of(std::span<const std::string> texts, Unit unit) {
  std::set<std::string> characters;
  for (const auto& text : texts) {
    const auto plain = normalize(text);
    for (const auto character : cut(plain, unit)) characters.emplace(character);
  }
  if (characters.empty())
    throw VocabularyError(looptorch::message("the ", texts.size(), " training texts hold no characters"));
  return {std::vector<std::string>(characters.begin(), characters.end()), unit};
}

inline std::vector<std::int64_t> Vocabulary::encode(std::string_view text, UnknownCharacters& unknown) const {
  const auto plain = normalize(text);
  std::vector<std::int64_t> ids;
  for (const auto character : cut(plain, unit_)) {
    const auto found = ids_.find(character);
    if (found == ids_.end()) unknown.add(character);
    ids.push_back(found == ids_.end() ? kUnknown : found->second);
  }
  return ids;
}

inline std::string Vocabulary::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const auto id : ids) {
    if (id >= size())
      throw VocabularyError(looptorch::message("id ", id, " is outside the vocabulary of ", size()));
    if (id >= kFirstCharacter) text += characters_[static_cast<std::size_t>(id - kFirstCharacter)];
  }
  return normalize(text);
}

inline looptorch::Json Vocabulary::to_json() const {
  auto json = looptorch::Json::object();
  json.set("unit", unit_ == Unit::code_point ? "code_point" : "grapheme");
  json.set("first_id", kFirstCharacter).set("characters", looptorch::Json::array(characters_));
  return json;
}

inline Vocabulary Vocabulary::from_json(const looptorch::Json& json, std::string_view where) {
  const auto fail = [&](const auto&... what) {
    throw VocabularyError(looptorch::message(where, ": ", what...));
  };
  try {
    const auto unit = json.at("unit").as_string();
    if (unit != "code_point" && unit != "grapheme")
      fail("unit is \"", unit, "\", neither \"code_point\" nor \"grapheme\"");
    if (json.at("first_id").as_int() != kFirstCharacter)
      fail("first_id is ", json.at("first_id").as_int(), ", not ", kFirstCharacter);
    std::vector<std::string> characters;
    std::set<std::string> seen;
    for (const auto& character : json.at("characters").as_array()) {
      characters.push_back(character.as_string());
      if (characters.back().empty() || !seen.insert(characters.back()).second)
        fail("character ", characters.size() - 1, " is ",
             characters.back().empty() ? "empty" : "there twice");
    }
    if (characters.empty()) fail("has no characters");
    return {std::move(characters), unit == "code_point" ? Unit::code_point : Unit::grapheme};
  } catch (const looptorch::JsonError& error) {
    throw VocabularyError(looptorch::message(where, ": ", error.what()));
  }
}

}  // namespace konkanivani
