// SPDX-License-Identifier: MIT
// The fewest substitutions, deletions and insertions that turn what was recognised into what was said:
// Levenshtein's distance over words or characters, as counts and as an alignment. Counts take O(n m) time and
// O(m) memory; an alignment a byte for each of the n m cells more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch {

/// What it takes to turn a hypothesis into its reference, in words or in characters.
struct EditCounts {
  std::int64_t hits = 0;
  std::int64_t substitutions = 0;
  std::int64_t deletions = 0;   ///< Said, not recognised.
  std::int64_t insertions = 0;  ///< Recognised, not said.

  [[nodiscard]] std::int64_t errors() const { return substitutions + deletions + insertions; }
  [[nodiscard]] std::int64_t reference_length() const { return hits + substitutions + deletions; }

  /// Errors over the reference's length: 1 is 100 %, more is possible. Of an empty reference, the insertions,
  /// as in jiwer.
  [[nodiscard]] double rate() const {
    return static_cast<double>(errors()) / static_cast<double>(std::max<std::int64_t>(reference_length(), 1));
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

enum class EditKind : std::uint8_t { hit, substitution, deletion, insertion };

/// One word or character of an alignment.
struct Edit {
  EditKind kind = EditKind::hit;
  std::string reference{};   ///< empty of an insertion
  std::string hypothesis{};  ///< empty of a deletion

  friend bool operator==(const Edit&, const Edit&) = default;
};

/// Reference and hypothesis side by side; `alignment_text` prints it.
struct Alignment {
  std::vector<Edit> edits{};
  std::string
      separator{};  ///< what stands between two tokens: a blank between words, nothing between characters

  [[nodiscard]] EditCounts counts() const;
};

namespace detail {

using Tokens = std::vector<std::string_view>;

/// Tokens as numbers: equal tokens get equal ones.
class TokenNumbers {
 public:
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

/// Two sequences of numbers without what both begin and end with. As in jiwer, the beginning goes first.
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

/// How a cell of Levenshtein's table is reached from the distances of its neighbours. A deletion goes before
/// an insertion, and that before the diagonal, where the distances allow it.
[[nodiscard]] inline EditKind choose_edit(std::int64_t left, std::int64_t above, std::int64_t diagonal,
                                          bool is_equal) {
  const auto best = std::min({left + 1, above + 1, diagonal + (is_equal ? 0 : 1)});
  if (left + 1 == best) return EditKind::deletion;
  if (above + 1 == diagonal) return EditKind::insertion;
  return is_equal ? EditKind::hit : EditKind::substitution;
}

[[nodiscard]] inline EditCounts count_of(EditKind kind) {
  return {.hits = kind == EditKind::hit,
          .substitutions = kind == EditKind::substitution,
          .deletions = kind == EditKind::deletion,
          .insertions = kind == EditKind::insertion};
}

/// Fills Levenshtein's table, hypothesis downwards and reference to the right, of which one row is kept;
/// `visit(kind)` sees each inner cell, row by row.
template <class Visit>
EditCounts fill_edit_table(const Core& core, Visit visit) {
  std::vector<EditCounts> row(core.reference.size() + 1);
  for (std::size_t col = 0; col < row.size(); ++col) row[col].deletions = static_cast<std::int64_t>(col);
  for (const int token : core.hypothesis) {
    auto diagonal = std::exchange(row[0], row[0] + count_of(EditKind::insertion));
    for (std::size_t col = 1; col < row.size(); ++col) {
      const auto &left = row[col - 1], above = row[col];
      const auto kind =
          choose_edit(left.errors(), above.errors(), diagonal.errors(), core.reference[col - 1] == token);
      const auto& from = kind == EditKind::deletion ? left : kind == EditKind::insertion ? above : diagonal;
      row[col] = from + count_of(kind);
      diagonal = above;
      visit(kind);
    }
  }
  return row.back();
}

/// The edits of the core, in order: the table walked back from its last cell.
[[nodiscard]] inline std::vector<EditKind> trace_edits(const Core& core) {
  std::vector<EditKind> table;
  table.reserve(core.reference.size() * core.hypothesis.size());
  fill_edit_table(core, [&](EditKind kind) { table.push_back(kind); });
  std::vector<EditKind> kinds;
  for (auto row = core.hypothesis.size(), col = core.reference.size(); row > 0 || col > 0;) {
    const auto kind = row == 0   ? EditKind::deletion
                      : col == 0 ? EditKind::insertion
                                 : table[(row - 1) * core.reference.size() + col - 1];
    kinds.push_back(kind);
    row -= kind != EditKind::deletion;
    col -= kind != EditKind::insertion;
  }
  std::reverse(kinds.begin(), kinds.end());
  return kinds;
}

[[nodiscard]] inline EditCounts count_edits(const Tokens& reference, const Tokens& hypothesis) {
  TokenNumbers numbers;
  const auto said = numbers.number(reference), recognised = numbers.number(hypothesis);
  const Core core(said, recognised);
  return fill_edit_table(core, [](EditKind) {}) +
         EditCounts{.hits = static_cast<std::int64_t>(core.prefix + core.suffix)};
}

[[nodiscard]] inline std::vector<Edit> align_tokens(const Tokens& reference, const Tokens& hypothesis) {
  TokenNumbers numbers;
  const auto said = numbers.number(reference), recognised = numbers.number(hypothesis);
  const Core core(said, recognised);
  std::vector<EditKind> kinds(core.prefix, EditKind::hit);
  const auto inner = trace_edits(core);
  kinds.insert(kinds.end(), inner.begin(), inner.end());
  kinds.insert(kinds.end(), core.suffix, EditKind::hit);
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
