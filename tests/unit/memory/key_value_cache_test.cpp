// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/memory/key_value_cache.hpp>

#include <cstdint>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::KeyValueCache;
using looptorch::KeyValues;
using looptorch::UsageError;

namespace {

KeyValues positions(std::int64_t rows, std::int64_t count) {
  return {at::randn({rows, 2, count, 3}), at::randn({rows, 2, count, 5})};
}

/// What concatenation gives.
struct Concatenated {
  KeyValues all;

  void append(const KeyValues& next) {
    all.keys = all.keys.defined() ? at::cat({all.keys, next.keys}, 2) : next.keys;
    all.values = all.values.defined() ? at::cat({all.values, next.values}, 2) : next.values;
  }
};

bool equal(const KeyValueCache& cache, const Concatenated& expected) {
  const auto held = cache.view();
  return held.keys.equal(expected.all.keys) && held.values.equal(expected.all.values);
}

}  // namespace

TEST_CASE("A key-value cache holds what concatenation would, whatever is appended and selected") {
  torch::manual_seed(5);
  KeyValueCache cache;
  Concatenated expected;
  CHECK(cache.length() == 0);
  CHECK_FALSE(cache.view().keys.defined());
  KeyValueCache of_none;
  of_none.append(positions(2, 0));
  CHECK(of_none.view().keys.size(2) == 0);
  std::int64_t rows = 4, length = 0;
  for (int step = 0; step < 90; ++step) {
    const auto next = positions(rows, step == 0 ? 7 : 1 + step % 2);
    cache.append(next);
    expected.append(next);
    length += next.keys.size(2);
    REQUIRE(cache.length() == length);
    REQUIRE(equal(cache, expected));
    if (step % 10 == 3) {  // a beam's parents, a row twice and one not at all; every third time fewer
      const auto parents =
          step % 30 == 23 && rows > 1 ? torch::arange(1, rows) : torch::randint(0, rows, {rows}, at::kLong);
      cache.select(parents);
      expected.all.select(parents);
      rows = parents.numel();
      REQUIRE(equal(cache, expected));
    }
  }
  CHECK(rows < 4);
}

TEST_CASE("A key-value cache grows by doubling, and appending moves nothing while there is room") {
  KeyValueCache cache;
  const void* memory = nullptr;
  std::vector<std::int64_t> capacities;
  for (int token = 0; token < 200; ++token) {
    cache.append(positions(1, 1));
    if (const void* now = cache.view().keys.const_data_ptr(); now != memory) {
      capacities.push_back(cache.capacity());
      memory = now;
    }
  }
  CHECK(capacities == std::vector<std::int64_t>{32, 64, 128, 256});

  KeyValueCache reserved(200);
  reserved.append(positions(1, 3));
  CHECK(reserved.capacity() == 200);
  KeyValueCache long_prompt;
  long_prompt.append(positions(1, 50));
  CHECK(long_prompt.capacity() == 50);
  long_prompt.append(positions(1, 1));
  CHECK(long_prompt.capacity() == 100);
}

TEST_CASE("A key-value cache reorders its rows by two blocks of memory, and keeps its room") {
  KeyValueCache cache;
  cache.append(positions(3, 1));
  const auto rows = torch::tensor({2, 0, 0}, at::kLong);
  const void* first = cache.view().keys.const_data_ptr();
  cache.select(rows);
  const void* second = cache.view().keys.const_data_ptr();
  CHECK(second != first);
  for (int i = 0; i < 4; ++i) {
    cache.append(positions(3, 1));
    CHECK(cache.view().keys.const_data_ptr() == (i % 2 == 0 ? second : first));
    cache.select(rows);
  }
  CHECK(cache.capacity() == 32);
}

TEST_CASE("A copy of a key-value cache goes its own way") {
  KeyValueCache cache;
  cache.append(positions(2, 3));
  auto copy = cache;
  CHECK(copy.view().keys.equal(cache.view().keys));
  copy.append(positions(2, 1));
  const auto next = positions(2, 1);
  cache.append(next);
  CHECK(cache.view().keys.narrow(2, 3, 1).equal(next.keys));
  CHECK_FALSE(copy.view().keys.equal(cache.view().keys));
  copy.select(torch::tensor({1}, at::kLong));
  CHECK(cache.view().keys.size(0) == 2);
  cache = std::move(copy);
  CHECK(cache.view().keys.size(0) == 1);
}

TEST_CASE("A key-value cache refuses what does not continue it") {
  KeyValueCache cache;
  CHECK_THROWS_WITH(cache.append({at::zeros({2, 3}), at::zeros({2, 3})}),
                    "KeyValueCache: expected keys [B, H, N, d], got [2, 3]");
  CHECK_THROWS_WITH(cache.append({at::zeros({1, 1, 1, 1}), {}}),
                    "KeyValueCache: expected values [B, H, N, d], got an undefined tensor");
  CHECK_THROWS_WITH(
      cache.append({at::zeros({1, 2, 3, 4}), at::zeros({1, 2, 1, 4})}),
      "KeyValueCache: keys [1, 2, 3, 4] and values [1, 2, 1, 4] are not of the same number of positions");
  cache.append(positions(2, 3));
  CHECK_THROWS_AS(cache.append(positions(3, 1)), UsageError);
  CHECK_THROWS_WITH(
      cache.append(positions(3, 1)),
      "KeyValueCache: keys [3, 2, 1, 3] Float on cpu do not continue those held, [2, 2, 3, 3] Float on cpu");
  auto halves = positions(2, 1);
  halves.keys = halves.keys.to(at::kHalf);
  CHECK_THROWS_AS(cache.append(halves), UsageError);
  auto wanted = positions(2, 1);
  wanted.values.requires_grad_();
  CHECK_THROWS_WITH(cache.append(wanted),
                    Contains("gradients are wanted of the values") && Contains("NoGradGuard"));
  CHECK(cache.length() == 3);
  const torch::NoGradGuard no_grad;
  CHECK_NOTHROW(cache.append(wanted));
}

TEST_CASE("Attention to a view of the cache is attention to the tensor") {
  torch::manual_seed(6);
  KeyValueCache cache;
  Concatenated expected;
  for (int token = 0; token < 40; ++token) {
    const KeyValues next{at::randn({3, 4, 1, 16}), at::randn({3, 4, 1, 16})};
    cache.append(next);
    expected.append(next);
  }
  const auto query = at::randn({3, 4, 1, 16});
  const auto held = cache.view();
  CHECK(at::allclose(at::scaled_dot_product_attention(query, held.keys, held.values),
                     at::scaled_dot_product_attention(query, expected.all.keys, expected.all.values), 1e-6,
                     1e-6));
}
