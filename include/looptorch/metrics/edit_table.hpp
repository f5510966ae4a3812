// SPDX-License-Identifier: MIT
// Computes the table of Levenshtein's edit distance, from which edit_alignment.hpp reads an alignment.
// Neighbouring cells differ by -1, 0 or 1. So a row takes two bits a cell, and 64 cells are computed at once
// (Myers 1999, Hyyrö 2003). For long texts only some rows are kept; the other rows are recomputed as the
// alignment is read from its end.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace looptorch::detail {

using BitRow = std::vector<std::uint64_t>;

/// A bit for each position of a text, set where a token occurs.
class TokenPositions {
 public:
  /// Takes tokens as numbers from 0 to below `kinds`.
  TokenPositions(std::span<const int> tokens, std::size_t kinds)
      : words_((tokens.size() + 63) / 64), places_(kinds), rows_(kinds), scratch_(words_) {
    for (std::size_t i = 0; i < tokens.size(); ++i) places_[index(tokens[i])].push_back(i);
    // Frequent tokens have a row of their own: at most 64, since each occurs at least once in 64 positions.
    for (std::size_t kind = 0; kind < kinds; ++kind)
      if (places_[kind].size() >= words_ && words_ > 0) set(rows_[kind] = BitRow(words_), places_[kind]);
  }

  [[nodiscard]] std::size_t words() const { return words_; }

  /// Calls `use` with the token's row.
  template <class Use>
  void with_row(int token, Use use) {
    const auto& row = rows_[index(token)];
    if (!row.empty()) return use(row);
    set(scratch_, places_[index(token)]);
    use(std::as_const(scratch_));
    for (const std::size_t place : places_[index(token)]) scratch_[place / 64] = 0;
  }

 private:
  static std::size_t index(int token) { return static_cast<std::size_t>(token); }
  static void set(BitRow& row, const std::vector<std::size_t>& places) {
    for (const std::size_t place : places) row[place / 64] |= std::uint64_t{1} << place % 64;
  }

  std::size_t words_;
  std::vector<std::vector<std::size_t>> places_;
  std::vector<BitRow> rows_;
  BitRow scratch_;
};

/// One row: the difference of each cell from its left neighbour. Bit i is the cell of reference token i.
struct EditRow {
  explicit EditRow(std::size_t words) : up(words, ~std::uint64_t{0}), down(words, 0) {}

  BitRow up, down;  ///< the cell is larger by one, smaller by one

  [[nodiscard]] bool is_up(std::size_t i) const { return (up[i / 64] >> i % 64 & 1) != 0; }
  [[nodiscard]] bool is_down(std::size_t i) const { return (down[i / 64] >> i % 64 & 1) != 0; }

  /// Becomes the next row, for a hypothesis token that equals the reference's at the bits in `equal`.
  void advance(const BitRow& equal) {
    std::uint64_t more = 1, less = 0;  // the left cell minus the one above it: 1 or -1
    for (std::size_t word = 0; word < up.size(); ++word) {
      const std::uint64_t vertical_up = up[word], vertical_down = down[word];
      const std::uint64_t matches = equal[word] | less;
      const std::uint64_t same =
          (((matches & vertical_up) + vertical_up) ^ vertical_up) | matches | vertical_down;
      const std::uint64_t row_up = vertical_down | ~(same | vertical_up), row_down = same & vertical_up;
      const std::uint64_t shifted_up = row_up << 1 | more, shifted_down = row_down << 1 | less;
      more = row_up >> 63, less = row_down >> 63;
      up[word] = shifted_down | ~(same | shifted_up);
      down[word] = shifted_up & same;
    }
  }
};

/// The table of two texts, hypothesis downwards and reference to the right.
class EditTable {
 public:
  /// Takes tokens as numbers from 0 to below `kinds`. O(n m / 64) time and O(sqrt(n) m) bits.
  EditTable(std::span<const int> reference, std::span<const int> hypothesis, std::size_t kinds)
      : hypothesis_(hypothesis), positions_(reference, kinds), stride_(stride(hypothesis.size())) {
    EditRow row(positions_.words());
    for (std::size_t i = 0; i < hypothesis.size(); ++i) {
      if (i % stride_ == 0) kept_.push_back(row);
      if (i / stride_ == (hypothesis.size() - 1) / stride_) block_.push_back(row);
      positions_.with_row(hypothesis[i], [&](const BitRow& equal) { row.advance(equal); });
    }
    block_.push_back(std::move(row));
    first_ = kept_.empty() ? 0 : (kept_.size() - 1) * stride_;
  }

  /// Returns row `i`; row 0 is before the first hypothesis token. Request rows from the last to the first.
  [[nodiscard]] const EditRow& row(std::size_t i) {
    if (i < first_) fill_block_of(i);
    return block_[i - first_];
  }

 private:
  static std::size_t stride(std::size_t rows) {
    constexpr double kFew = 64;  // so that the rows of a sentence are computed once
    return static_cast<std::size_t>(std::max(kFew, std::ceil(std::sqrt(static_cast<double>(rows)))));
  }

  void fill_block_of(std::size_t i) {
    const std::size_t end = first_;
    first_ = i / stride_ * stride_;
    block_.clear();
    for (EditRow row = kept_[i / stride_]; first_ + block_.size() < end;) {
      block_.push_back(row);
      positions_.with_row(hypothesis_[first_ + block_.size() - 1],
                          [&](const BitRow& equal) { row.advance(equal); });
    }
  }

  std::span<const int> hypothesis_;
  TokenPositions positions_;
  std::size_t stride_, first_ = 0;
  std::vector<EditRow> kept_;   ///< every `stride_` rows
  std::vector<EditRow> block_;  ///< all rows from `first_` on
};

}  // namespace looptorch::detail
