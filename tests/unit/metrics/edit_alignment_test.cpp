// SPDX-License-Identifier: MIT
// The table of 64 cells at a time against the plain one, edit by edit.
// Tests metrics: edit_table
#include "support/precompiled.hpp"

#include <looptorch/metrics/character_error_rate.hpp>
#include <looptorch/metrics/edit_alignment.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

using looptorch::EditCounts;
using looptorch::EditKind;

namespace {

using Text = std::vector<int>;

char letter(EditKind kind) { return "=SDI"[static_cast<std::size_t>(kind)]; }

/// Levenshtein's table cell by cell, walked back: a deletion goes before an insertion, and that before the
/// diagonal.
std::string plain_edits(const Text& reference, const Text& hypothesis) {
  std::vector<std::vector<std::size_t>> table(hypothesis.size() + 1,
                                              std::vector<std::size_t>(reference.size() + 1));
  for (std::size_t row = 0; row <= hypothesis.size(); ++row)
    for (std::size_t col = 0; col <= reference.size(); ++col) {
      if (row == 0 || col == 0) {
        table[row][col] = row + col;
        continue;
      }
      const bool differs = reference[col - 1] != hypothesis[row - 1];
      table[row][col] = std::min(
          {table[row][col - 1] + 1, table[row - 1][col] + 1, table[row - 1][col - 1] + (differs ? 1 : 0)});
    }
  std::string kinds;
  for (auto row = hypothesis.size(), col = reference.size(); row > 0 || col > 0;) {
    EditKind kind = EditKind::hit;
    if (col > 0 && (row == 0 || table[row][col - 1] + 1 == table[row][col]))
      kind = EditKind::deletion;
    else if (col == 0 || table[row - 1][col] + 1 == table[row - 1][col - 1])
      kind = EditKind::insertion;
    else if (reference[col - 1] != hypothesis[row - 1])
      kind = EditKind::substitution;
    kinds += letter(kind);
    row -= kind != EditKind::deletion;
    col -= kind != EditKind::insertion;
  }
  return kinds;
}

std::string edits(const Text& reference, const Text& hypothesis, int kinds) {
  std::string found;
  looptorch::detail::Core core({}, {});
  core.reference = reference, core.hypothesis = hypothesis;
  looptorch::detail::visit_edits(core, static_cast<std::size_t>(kinds),
                                 [&](EditKind kind) { found += letter(kind); });
  return found;
}

class Texts {
 public:
  Text random(std::size_t length, int kinds) {
    Text text;
    while (text.size() < length) text.push_back(below(kinds));
    return text;
  }
  /// `text` with some of its tokens dropped, replaced and doubled.
  Text damaged(const Text& text, int kinds, int percent) {
    Text result;
    for (const int token : text) {
      const int dice = below(100);
      if (dice < percent) continue;
      result.push_back(dice < 2 * percent ? below(kinds) : token);
      if (dice >= 100 - percent) result.push_back(below(kinds));
    }
    return result;
  }
  int below(int end) { return static_cast<int>(engine_() % static_cast<unsigned>(end)); }

 private:
  std::mt19937 engine_{7};
};

}  // namespace

TEST_CASE("edits: those of the plain table, for short texts and for many rows of words") {
  Texts texts;
  for (int i = 0; i < 1500; ++i) {
    const int kinds = 1 + texts.below(i % 3 == 0 ? 60 : 4);
    const int longest = i % 25 == 0 ? 400 : 140;  // more than 64 rows: some are computed a second time
    const Text reference = texts.random(static_cast<std::size_t>(texts.below(longest)), kinds);
    const Text hypothesis = i % 2 == 0 ? texts.random(static_cast<std::size_t>(texts.below(longest)), kinds)
                                       : texts.damaged(reference, kinds, texts.below(30));
    CAPTURE(i, kinds, reference.size(), hypothesis.size());
    CHECK(edits(reference, hypothesis, kinds) == plain_edits(reference, hypothesis));
  }
}

TEST_CASE("edits: of rare tokens in a long text") {
  Texts texts;
  const Text reference = texts.random(1500, 700), hypothesis = texts.damaged(reference, 700, 20);
  CHECK(edits(reference, hypothesis, 700) == plain_edits(reference, hypothesis));
}

TEST_CASE("character error rate: of 60,000 characters without the n m cells") {
  Texts texts;
  const auto spelled = [](const Text& text) {
    std::string letters;
    for (const int token : text) letters += static_cast<char>('a' + token);
    return letters;
  };
  const Text reference = texts.random(60'000, 26), hypothesis = texts.damaged(reference, 26, 5);
  const EditCounts counts = looptorch::count_character_errors(spelled(reference), spelled(hypothesis));
  CHECK(counts.reference_length() == 60'000);
  CHECK(counts.hits + counts.substitutions + counts.insertions ==
        static_cast<std::int64_t>(hypothesis.size()));
  CHECK(counts.rate() > 0.12);
  CHECK(counts.rate() < 0.15);
  const EditCounts swapped = looptorch::count_character_errors(spelled(hypothesis), spelled(reference));
  CHECK(swapped.errors() == counts.errors());
}
