// SPDX-License-Identifier: MIT
// Lists of samples on disk, and the sampler that leaves them out.
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/exclude_samples.hpp>
#include <looptorch/data/samplers/distributed_sampler.hpp>

#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace looptorch;
using looptorch::testing::TemporaryFolder;
using Indices = std::vector<std::int64_t>;

TEST_CASE("ExcludeSamples yields the other samples, by their own indices") {
  const ExcludeSamples sequential({4, 1, 4, 99}, SequentialSampler{});
  CHECK(sequential.order(0, 6) == Indices{0, 2, 3, 5});
  CHECK(sequential.count(6) == 4);
  const ExcludeSamples random({0, 5}, RandomSampler{.seed = 3});
  Indices order = random.order(1, 6);
  CHECK(order != random.order(2, 6));
  std::sort(order.begin(), order.end());
  CHECK(order == Indices{1, 2, 3, 4});
  CHECK(ExcludeSamples({}, RandomSampler{.seed = 3}).order(1, 50) == RandomSampler{.seed = 3}.order(1, 50));
}

TEST_CASE("ExcludeSamples composes with DistributedSampler, and its identity tells lists apart") {
  const DistributedSampler first({.rank = 0, .world_size = 2}, ExcludeSamples({0}, SequentialSampler{}));
  const DistributedSampler second({.rank = 1, .world_size = 2}, ExcludeSamples({0}, SequentialSampler{}));
  CHECK((first.order(0, 5) == Indices{1, 3} && second.order(0, 5) == Indices{2, 4}));
  CHECK(first.count(5) == 2);
  CHECK(ExcludeSamples({1, 2}).identity() == ExcludeSamples({2, 1, 1}).identity());
  CHECK(ExcludeSamples({1, 2}).identity() != ExcludeSamples({1, 3}).identity());
  CHECK(ExcludeSamples({1, 2}).identity() != ExcludeSamples({1, 2}, SequentialSampler{}).identity());
}

TEST_CASE("ExcludeSamples refuses indices that are none, and to exclude everything") {
  CHECK_THROWS_WITH(ExcludeSamples({3, -2}), Catch::Contains("-2 is not the index of a sample"));
  CHECK_THROWS_WITH(ExcludeSamples({0, 1}).order(0, 2), Catch::Contains("all 2 samples"));
  CHECK(ExcludeSamples({}).count(0) == 0);
}

TEST_CASE("a list of samples grows, sorted and each once; what is no index is refused with its line") {
  TemporaryFolder folder;
  const auto list = folder / "list.txt";
  add_to_sample_list(list, {});
  CHECK(read_sample_list(list).empty());
  add_to_sample_list(list, {7, 3});
  add_to_sample_list(list, {5, 7});
  CHECK(read_sample_list(list) == Indices{3, 5, 7});
  write_file_atomically(list, "9\r\n2");
  CHECK(read_sample_list(list) == Indices{2, 9});
  for (const char* text : {"1\n-4\n", "1\nseven\n", "1\n\n", "1\n2 3\n", "1\n99999999999999999999\n"}) {
    write_file_atomically(list, text);
    CHECK_THROWS_WITH(read_sample_list(list),
                      Catch::Contains("list.txt:2: expected the index of a sample, got"));
  }
  CHECK_THROWS_AS(read_sample_list(folder / "none.txt"), FileError);
}

TEST_CASE("a list of samples that cannot be looked at is refused with a FileError") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  for (const auto& list : {folder / "loop", folder / std::string(300, 'a')})
    CHECK_THROWS_AS(add_to_sample_list(list, {1}), FileError);
  CHECK(std::filesystem::is_symlink(folder / "loop"));
}
