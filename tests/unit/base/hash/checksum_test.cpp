// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/hash/checksum.hpp>
#include <looptorch/base/random.hpp>

#include <algorithm>
#include <set>
#include <string>

using looptorch::detail::Checksum;

namespace {

std::uint64_t checksum(std::initializer_list<std::string_view> pieces, std::uint64_t seed = 0) {
  Checksum sum(seed);
  for (const std::string_view piece : pieces) sum.add(piece.data(), piece.size());
  return sum.value();
}

}  // namespace

TEST_CASE("every flipped bit changes the checksum, and no two changes give the same") {
  for (const std::size_t size : {1, 7, 8, 63, 64, 65, 200}) {
    std::string text(size, '\0');
    looptorch::SplitMix64 random(size);
    for (char& letter : text) letter = char(random.next());
    std::set<std::uint64_t> seen{checksum({text})};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      text[bit / 8] = char(text[bit / 8] ^ (1 << (bit % 8)));
      seen.insert(checksum({text}));
      text[bit / 8] = char(text[bit / 8] ^ (1 << (bit % 8)));
    }
    CHECK(seen.size() == 8 * size + 1);
  }
}

TEST_CASE("length, order and where pieces end are part of a checksum") {
  const std::set<std::uint64_t> different{checksum({}),
                                          checksum({""}),
                                          checksum({"ab"}),
                                          checksum({"a", "b"}),
                                          checksum({"ba"}),
                                          checksum({"b", "a"}),
                                          checksum({"ab", ""}),
                                          checksum({"", "ab"}),
                                          checksum({"ab"}, 1),
                                          checksum({std::string_view("ab\0", 3)}),
                                          checksum({std::string(64, '\0')}),
                                          checksum({std::string(128, '\0')})};
  CHECK(different.size() == 12);
}

TEST_CASE("words that change places change the checksum") {
  std::string text;
  for (char word = 0; word < 32; ++word) text += std::string(8, word);
  std::set<std::uint64_t> seen{checksum({text})};
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t j = i + 1; j < 32; ++j) {
      std::string swapped = text;
      std::swap_ranges(swapped.begin() + std::ptrdiff_t(8 * i), swapped.begin() + std::ptrdiff_t(8 * i + 8),
                       swapped.begin() + std::ptrdiff_t(8 * j));
      seen.insert(checksum({swapped}));
    }
  CHECK(seen.size() == 1 + 32 * 31 / 2);
}

TEST_CASE("a checksum is part of the format of caches on disk") {
  CHECK(checksum({"looptorch", std::string(100, 'x')}) == 11136804515161528087U);
}
