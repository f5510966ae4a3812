// SPDX-License-Identifier: MIT
// Finds the fewest substitutions, deletions and insertions that turn the reference into the hypothesis
// (Levenshtein's distance), over words or characters. Gives counts, or an alignment. For texts of n and m
// elements takes O(n m / 64) time and O(sqrt(n) m) bits: two texts of 60,000 characters take 0.2 s and 8 MB.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/metrics/edit_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace looptorch {

/// The edits that turn a reference into its hypothesis, in words or in characters.
struct EditCounts {
  std::int64_t hits = 0;
  std::int64_t substitutions = 0;
  std::int64_t deletions = 0;   ///< In the reference alone.
  std::int64_t insertions = 0;  ///< In the hypothesis alone.

  [[nodiscard]] std::int64_t errors() const { return substitutions + deletions + insertions; }
  [[nodiscard]] std::int64_t reference_length() const { return hits + substitutions + deletions; }

  /// Returns the errors over the reference's length: 1 is 100 %, and more is possible. For an empty
  /// reference, returns the insertions, as in jiwer.
  [[nodiscard]] double rate() const {
    return static_cast<double>(errors()) / static_cast<double>(std::max<std::int64_t>(reference_length(), 1));
  }

  /// Sums the counts of a run's ranks, which all give the same `name`.
  void all_reduce(const std::string& name, RankReduction& reduction) {
    reduction.sum(name + " hits", hits);
    reduction.sum(name + " substitutions", substitutions);
    reduction.sum(name + " deletions", deletions);
    reduction.sum(name + " insertions", insertions);
  }

  EditCounts& operator+=(const EditCounts& other) {
    hits += other.hits;
    substitutions += other.substitutions;
    deletions += other.deletions;
    insertions += other.insertions;
    return *this;
  }
  friend EditCounts operator+(EditCounts a, const EditCounts& b) { return a += b; }
  friend bool operator==(const EditCounts&, const EditCounts&) = default;
};

/// A step of an alignment. All but an insertion use up a token of the reference.
enum class EditKind : std::uint8_t { hit, substitution, deletion, insertion };

/// One word or character of an alignment.
struct Edit {
  EditKind kind = EditKind::hit;
  std::string reference{};   ///< empty for an insertion
  std::string hypothesis{};  ///< empty for a deletion

  friend bool operator==(const Edit&, const Edit&) = default;
};

/// Reference and hypothesis side by side; `alignment_text` prints it.
struct Alignment {
  std::vector<Edit> edits{};
  std::string separator{};  ///< between two tokens: a space for words, empty for characters

  [[nodiscard]] EditCounts counts() const;
};

namespace detail {

using Tokens = std::vector<std::string_view>;

/// Numbers tokens; equal tokens get equal numbers.
class TokenNumbers {
 public:
  [[nodiscard]] std::size_t size() const { return numbers_.size(); }

  [[nodiscard]] std::vector<int> number(const Tokens& tokens) {
    std::vector<int> numbers;
    numbers.reserve(tokens.size());
    for (const auto token : tokens) {
      numbers.push_back(numbers_.try_emplace(token, static_cast<int>(numbers_.size())).first->second);
    }
    return numbers;
  }

 private:
  std::unordered_map<std::string_view, int> numbers_;
};

/// Two sequences of numbers without their common beginning and end. As in jiwer, the beginning is removed
/// first.
struct Core {
  std::span<const int> reference, hypothesis;
  std::size_t prefix = 0, suffix = 0;

  Core(std::span<const int> said, std::span<const int> recognised) : reference(said), hypothesis(recognised) {
    const auto begin = std::mismatch(said.begin(), said.end(), recognised.begin(), recognised.end()).first;
    prefix = static_cast<std::size_t>(begin - said.begin());
    reference = reference.subspan(prefix), hypothesis = hypothesis.subspan(prefix);
    const auto end =
        std::mismatch(reference.rbegin(), reference.rend(), hypothesis.rbegin(), hypothesis.rend()).first;
    suffix = static_cast<std::size_t>(end - reference.rbegin());
    reference = reference.first(reference.size() - suffix);
    hypothesis = hypothesis.first(hypothesis.size() - suffix);
  }
};

[[nodiscard]] inline EditCounts count_of(EditKind kind) {
  return {.hits = kind == EditKind::hit,
          .substitutions = kind == EditKind::substitution,
          .deletions = kind == EditKind::deletion,
          .insertions = kind == EditKind::insertion};
}

/// Returns the edit by which a cell of the table is reached. Of several shortest ways, a deletion is
/// preferred to an insertion, and that to the diagonal, as in jiwer.
[[nodiscard]] inline EditKind edit_at(EditTable& table, const Core& core, std::size_t row, std::size_t col) {
  if (row == 0) return EditKind::deletion;
  if (col == 0) return EditKind::insertion;
  if (table.row(row).is_up(col - 1)) return EditKind::deletion;
  if (table.row(row - 1).is_down(col - 1)) return EditKind::insertion;
  return core.hypothesis[row - 1] == core.reference[col - 1] ? EditKind::hit : EditKind::substitution;
}

/// Calls `visit` with the edits of the core, the last one first.
template <class Visit>
void visit_edits(const Core& core, std::size_t kinds, Visit visit) {
  EditTable table(core.reference, core.hypothesis, kinds);
  for (auto row = core.hypothesis.size(), col = core.reference.size(); row > 0 || col > 0;) {
    const auto kind = edit_at(table, core, row, col);
    visit(kind);
    row -= kind != EditKind::deletion;
    col -= kind != EditKind::insertion;
  }
}

[[nodiscard]] inline EditCounts count_edits(const Tokens& reference, const Tokens& hypothesis) {
  TokenNumbers numbers;
  const auto said = numbers.number(reference), recognised = numbers.number(hypothesis);
  const Core core(said, recognised);
  EditCounts counts{.hits = static_cast<std::int64_t>(core.prefix + core.suffix)};
  visit_edits(core, numbers.size(), [&](EditKind kind) { counts += count_of(kind); });
  return counts;
}

[[nodiscard]] inline std::vector<Edit> align_tokens(const Tokens& reference, const Tokens& hypothesis) {
  TokenNumbers numbers;
  const auto said = numbers.number(reference), recognised = numbers.number(hypothesis);
  const Core core(said, recognised);
  std::vector<EditKind> kinds(core.suffix, EditKind::hit);
  visit_edits(core, numbers.size(), [&](EditKind kind) { kinds.push_back(kind); });
  kinds.insert(kinds.end(), core.prefix, EditKind::hit);
  std::reverse(kinds.begin(), kinds.end());
  std::vector<Edit> edits;
  auto next_said = reference.begin(), next_recognised = hypothesis.begin();
  for (const auto kind : kinds) {
    auto& edit = edits.emplace_back(Edit{.kind = kind});
    if (kind != EditKind::insertion) edit.reference = *next_said++;
    if (kind != EditKind::deletion) edit.hypothesis = *next_recognised++;
  }
  return edits;
}

}  // namespace detail

inline EditCounts Alignment::counts() const {
  EditCounts total;
  for (const auto& edit : edits) total += detail::count_of(edit.kind);
  return total;
}

}  // namespace looptorch
