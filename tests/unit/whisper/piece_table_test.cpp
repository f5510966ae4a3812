// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/piece_table.hpp>

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
