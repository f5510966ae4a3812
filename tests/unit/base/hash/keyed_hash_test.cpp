// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/hash/keyed_hash.hpp>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

using looptorch::keyed_hash;

namespace {

constexpr std::size_t kSlots = 4096;

/// Of 2000 keys the share that should have a slot of their own or be the first in one.
template <class Key>
double share_of_slots(const std::vector<Key>& keys) {
  REQUIRE(keys.size() == 2000);
  std::set<std::size_t> slots;
  for (const auto& key : keys) slots.insert(keyed_hash(key) % kSlots);
  const double expected = double(kSlots) * (1 - std::exp(-2000.0 / double(kSlots)));
  return double(slots.size()) / expected;
}

template <class Make>
auto make_keys(Make make) {
  std::vector<decltype(make(std::size_t{}))> keys;
  for (std::size_t i = 0; i < 2000; ++i) keys.push_back(make(i));
  return keys;
}

std::string bytes_of(std::uint64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

}  // namespace

TEST_CASE("keyed hash: numbers that differ in few bits, low or high, are spread over a table") {
  const int shift = GENERATE(0, 11, 32, 43, 53);
  CAPTURE(shift);
  CHECK(share_of_slots(make_keys([&](std::size_t i) { return std::uint64_t{i} << shift; })) > 0.9);
}

TEST_CASE("keyed hash: texts that differ in their length, beginning or end are spread over a table") {
  const std::size_t size = GENERATE(0, 1, 5, 8, 16, 31);
  CAPTURE(size);
  const std::string rest(size, 'x');
  CHECK(share_of_slots(make_keys([&](std::size_t i) { return bytes_of(i) + rest; })) > 0.9);
  CHECK(share_of_slots(make_keys([&](std::size_t i) { return rest + bytes_of(i); })) > 0.9);
  CHECK(share_of_slots(make_keys([&](std::size_t i) { return rest + bytes_of(i << 53); })) > 0.9);
  CHECK(share_of_slots(make_keys([](std::size_t i) { return std::string(i, '\0'); })) > 0.9);
}

TEST_CASE("keyed hash: every byte counts, whatever the length") {
  for (std::size_t size = 1; size <= 40; ++size) {
    const std::string text(size, 'a');
    std::unordered_set<std::size_t> hashes{keyed_hash(text)};
    for (std::size_t i = 0; i < size; ++i) {
      auto other = text;
      other[i] = 'b';
      hashes.insert(keyed_hash(other));
    }
    CHECK(hashes.size() == size + 1);
  }
}

TEST_CASE("keyed hash: a key has one hash, wherever it lies") {
  const std::string text = "xxmodel.decoder.layers.0";
  for (std::size_t size = 0; size + 2 <= text.size(); ++size) {
    const std::string copy = text.substr(2, size);
    CHECK(keyed_hash(copy) == keyed_hash(std::string_view(text).substr(2, size)));
    CHECK(looptorch::KeyedHash{}(copy) == keyed_hash(copy));
  }
}
