// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/text/piece_table.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>

using whisper::PieceTable;

TEST_CASE("piece table: finds each piece that was added, and no other") {
  std::mt19937 random(3);
  const auto draw = [&] {  // of two letters, so that many differ in one byte, or are the start of another
    std::string piece(1 + random() % 20, '\0');
    for (auto& c : piece) c = random() % 4 == 0 ? '\0' : 'a';
    return piece;
  };
  std::map<std::string, std::int32_t> pieces;
  while (pieces.size() < 2000) pieces.emplace(draw(), static_cast<std::int32_t>(pieces.size()));
  PieceTable table(pieces.size());
  for (const auto& [piece, id] : pieces) {
    REQUIRE(table.find(piece) == PieceTable::kAbsent);
    table.add(piece, id);
  }
  for (const auto& [piece, id] : pieces) REQUIRE(table.find(piece) == id);
  for (int i = 0; i < 5000; ++i) {
    const auto piece = draw();
    const auto found = pieces.find(piece);
    REQUIRE(table.find(piece) == (found == pieces.end() ? PieceTable::kAbsent : found->second));
  }
}

TEST_CASE("piece table: an empty one finds nothing") {
  CHECK(PieceTable().find("a") == PieceTable::kAbsent);
  CHECK(PieceTable(0).find("a long piece of text") == PieceTable::kAbsent);
}

TEST_CASE("piece table: pieces made to collide in a multiplicative hash take no longer than others") {
  constexpr std::uint64_t kInverse = 0xF1DE83E19937733D;
  static_assert(0x9E3779B97F4A7C15 * kInverse == 1);
  const auto milliseconds = [&](bool collide) {
    const auto start = std::chrono::steady_clock::now();
    PieceTable table(40'000);
    for (std::uint64_t i = 0; i < 40'000; ++i) {
      const auto product = i << 32 | (collide ? i : 0);  // halves whose XOR is 0, or counts
      const auto word = product * kInverse ^ 8;
      table.add({reinterpret_cast<const char*>(&word), sizeof(word)}, std::int32_t(i));
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  CHECK(milliseconds(true) < 10 * (1 + milliseconds(false)));
}
