// SPDX-License-Identifier: MIT
// Looks up a piece of text that is a token by itself, as most words are, so that it need not be merged from
// parts. Pieces of up to 8 bytes are stored in the table itself; one look-up takes about 5 ns.
#pragma once

#include <looptorch/base/hash/keyed_hash.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

/// A map from bytes to token ids in [0, 2^31), of known size.
class PieceTable {
 public:
  static constexpr std::int32_t kAbsent = -1;

  /// Reserves room for `capacity` pieces.
  explicit PieceTable(std::size_t capacity = 0) : slots_(std::bit_ceil(2 * capacity + 1)) {}

  /// Adds a new piece that is not empty; at most `capacity` times.
  void add(std::string_view piece, std::int32_t id);

  /// Returns the id, or kAbsent.
  [[nodiscard]] std::int32_t find(std::string_view piece) const { return slots_[position(piece)].id; }

 private:
  struct Slot {
    std::uint64_t head = 0;  ///< The first 8 bytes.
    std::uint32_t size = 0;
    std::int32_t id = kAbsent;
    std::uint32_t tail = 0;  ///< Offset of the other bytes in `tails_`.
  };

  static std::uint64_t head_of(std::string_view piece) {
    std::uint64_t head = 0;
    std::memcpy(&head, piece.data(), std::min<std::size_t>(piece.size(), 8));
    return head;
  }

  [[nodiscard]] bool holds(const Slot& slot, std::string_view piece) const {
    if (slot.size != piece.size() || slot.head != head_of(piece)) return false;
    return piece.size() <= 8 ||
           std::memcmp(tails_.data() + slot.tail, piece.data() + 8, piece.size() - 8) == 0;
  }

  /// Returns the index of the piece's slot, or of the free slot for it.
  [[nodiscard]] std::size_t position(std::string_view piece) const {
    const auto mask = slots_.size() - 1;
    auto slot = looptorch::keyed_hash(piece) & mask;
    while (slots_[slot].id != kAbsent && !holds(slots_[slot], piece)) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<Slot> slots_;  ///< Open addressing; a power of two, at most half full.
  std::string tails_;
};

inline void PieceTable::add(std::string_view piece, std::int32_t id) {
  slots_[position(piece)] = {head_of(piece), static_cast<std::uint32_t>(piece.size()), id,
                             static_cast<std::uint32_t>(tails_.size())};
  if (piece.size() > 8) tails_ += piece.substr(8);
}

}  // namespace whisper
