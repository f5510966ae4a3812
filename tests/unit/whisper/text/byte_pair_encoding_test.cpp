// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/text/byte_pair_encoding.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

using whisper::MergeTable;
using Tokens = std::vector<std::int64_t>;

namespace {

using Merges = std::map<std::pair<std::int64_t, std::int64_t>, MergeTable::Merge>;

/// By the definition: the neighbours of the lowest rank, of equals the leftmost, until none can be merged.
Tokens merge_slowly(const Merges& merges, Tokens tokens) {
  while (true) {
    auto best = tokens.size();
    std::int64_t rank = MergeTable::kNoMerge;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = merges.find({tokens[i], tokens[i + 1]});
      if (found != merges.end() && found->second.rank < rank) best = i, rank = found->second.rank;
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = merges.at({tokens[best], tokens[best + 1]}).token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

Tokens merged(const MergeTable& table, Tokens tokens) {
  table.apply(tokens);
  return tokens;
}

}  // namespace

TEST_CASE("byte pair encoding: words and long runs are merged as the definition has it") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    Merges merges;
    MergeTable table;
    const int tokens_in_all = 2 + static_cast<int>(random() % 5);
    for (std::int32_t rank = 0; rank < 30; ++rank) {
      const std::pair<std::int64_t, std::int64_t> pair{random() % (tokens_in_all + rank),
                                                       random() % (tokens_in_all + rank)};
      const MergeTable::Merge merge{rank, tokens_in_all + rank};
      merges[pair] = merge;  // of a pair that comes twice the last counts
      table.add(pair.first, pair.second, merge);
    }
    for (const std::size_t size : {0, 1, 2, 3, 7, 47, 48, 49, 200}) {
      Tokens tokens(size);
      for (auto& token : tokens) token = random() % tokens_in_all;
      CAPTURE(round, size);
      REQUIRE(merged(table, tokens) == merge_slowly(merges, tokens));
    }
  }
}

TEST_CASE("byte pair encoding: what stands before the piece is left alone") {
  MergeTable table;
  table.add(1, 1, {0, 2});
  for (const std::size_t size : {4, 100}) {
    Tokens tokens(2 + size, 1);
    table.apply(tokens, 2);
    Tokens expected(2 + size / 2, 2);
    expected[0] = expected[1] = 1;
    CHECK(tokens == expected);
  }
}

TEST_CASE("byte pair encoding: merges made to collide in a multiplicative hash take no longer than others") {
  constexpr std::uint64_t kInverse = 0xF1DE83E19937733D;
  static_assert(0x9E3779B97F4A7C15 * kInverse == 1);
  const auto milliseconds = [&](int shift) {
    const auto start = std::chrono::steady_clock::now();
    MergeTable table;
    for (std::uint64_t i = 0, added = 0; added < 40'000; ++i) {
      const auto pair = (i << shift) * kInverse;  // times the factor: bits from 32 on are 0, or count
      if ((pair & 0x8000'0000'8000'0000) != 0) continue;
      table.add(std::int64_t(pair >> 32), std::int64_t(pair & 0xFFFF'FFFF), {0, 0});
      ++added;
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  CHECK(milliseconds(0) < 10 * (1 + milliseconds(32)));
}
