// SPDX-License-Identifier: MIT
// A range of batches as a fit uses it, for a vector, a range that shuffles and skips, and a stream.
#include "support/precompiled.hpp"

#include <looptorch/data/loader/batch_range.hpp>

#include <cstdint>
#include <iterator>
#include <vector>

namespace lt = looptorch;
using lt::detail::BatchRange;
using lt::detail::PinnedSource;

namespace {

/// Shuffles by epoch and skips, as a loader does.
struct Skipping {
  std::vector<int> data{10, 11, 12};
  std::int64_t epoch = -1;
  std::int64_t skipped_batches = 0;

  void begin_epoch(std::int64_t number) { epoch = number; }
  void skip(std::int64_t count) { skipped_batches = count; }
  auto begin() { return data.begin() + skipped_batches; }
  auto end() { return data.end(); }
  [[nodiscard]] std::size_t size() const { return data.size(); }
  [[nodiscard]] lt::StateDict identity() const {
    lt::StateDict identity;
    identity.set("seed", std::int64_t{7});
    return identity;
  }
};

/// Counts to 5 once.
struct Stream {
  struct Iterator {
    using value_type = int;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    int* at;
    int operator*() const { return *at; }
    Iterator& operator++() {
      ++*at;
      return *this;
    }
    void operator++(int) { ++*at; }
    bool operator==(std::default_sentinel_t) const { return *at == 5; }
  };
  int at = 0;
  Iterator begin() { return {&at}; }
  std::default_sentinel_t end() { return {}; }
};

}  // namespace

TEST_CASE("a batch range of a vector knows its size and begins in the middle of an epoch") {
  std::vector<int> data{1, 2, 3};
  const BatchRange range(data);
  STATIC_REQUIRE(decltype(range)::repeatable);
  STATIC_REQUIRE(decltype(range)::pinned == PinnedSource::staged);
  CHECK(range.size() == 3);
  CHECK(*range.begin_at(0, 2, false) == 3);
  CHECK(range.begin_at(0, 3, false) == range.end());
  CHECK(range.begin_at(0, 9, false) == range.end());
  CHECK(range.identity().get<std::int64_t>("batches") == 3);
  CHECK_FALSE(range.number_at(data.begin()));
  CHECK(range.indices_at(data.begin()).empty());
}

TEST_CASE("a batch range passes the epoch and the batches to skip on to a range that takes them") {
  Skipping data;
  const BatchRange range(data);
  CHECK(*range.begin_at(4, 2, false) == 12);
  CHECK(data.epoch == 4);
  CHECK(range.begin_at(5, 9, false) == range.end());
  CHECK(data.skipped_batches == 3);
  CHECK(*range.begin_at(6, 0, false) == 10);  // an earlier skip does not last
  CHECK(range.identity().get<std::int64_t>("seed") == 7);
  CHECK(range.feed().identity().get<std::int64_t>("batches") == 3);
  CHECK(range.feed().repeatable);
  CHECK(range.feed().stats == nullptr);
  CHECK(range.feed().skipped().count == 0);
}

TEST_CASE("a batch range of a stream continues where it stands, unless another process began the epoch") {
  Stream data;
  const BatchRange range(data);
  STATIC_REQUIRE_FALSE(decltype(range)::repeatable);
  CHECK_FALSE(range.size());
  CHECK_FALSE(range.identity().contains("batches"));
  CHECK(*range.begin_at(0, 2, false) == 0);
  CHECK(*range.begin_at(0, 2, true) == 2);
}

TEST_CASE("a batch that is on another device is copied there, and stays as it was") {
  at::Tensor batch = torch::ones({2, 3});
  const auto is_the_batch = [&](const at::Tensor& given) { CHECK(&given == &batch); };
  lt::detail::with_batch_on(at::kCPU, PinnedSource::staged, batch, is_the_batch);
  at::Device seen = at::kCPU;
  lt::detail::with_batch_on(at::kMeta, PinnedSource::staged, batch,
                            [&](const at::Tensor& given) { seen = given.device(); });
  CHECK(seen == at::Device(at::kMeta));
  CHECK(batch.is_cpu());
}
