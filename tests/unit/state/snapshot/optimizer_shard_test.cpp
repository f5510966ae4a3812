// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/optimizer_shard.hpp>
#include <looptorch/state/snapshot/snapshot.hpp>

#include "support/temporary_folder.hpp"

#include <ATen/ops/ones.h>

#include <cstdint>
#include <filesystem>

using namespace looptorch::detail;
using Catch::Contains;
using looptorch::SnapshotError;

TEST_CASE("A rank's shard is listed with its name in the snapshot") {
  const looptorch::testing::TemporaryFolder folder;
  write_shard(folder.path(), 12, 3, {{"0.state.weight.exp_avg[0:2 of 4]", at::ones({2})}});
  const auto listed = listing_of(shard_path(folder.path(), 12, 3));
  CHECK(listed.name == shard_file_name(3));
  CHECK(is_left_shard(shard_path(folder.path(), 12, 3).filename().string()));
}

TEST_CASE("A shard on a disk of another machine is missed with a sentence that says so") {
  const looptorch::testing::TemporaryFolder here, there;
  write_shard(there.path(), 12, 1, {{"0.state.weight.exp_avg", at::ones({2})}});
  CHECK_THROWS_AS(listing_of(shard_path(here.path(), 12, 1)), SnapshotError);
  CHECK_THROWS_WITH(
      listing_of(shard_path(here.path(), 12, 1)),
      Contains(".json: another rank wrote this file") && Contains("a disk that all ranks share"));
}

TEST_CASE("Shards of a snapshot that fails are removed") {
  const looptorch::testing::TemporaryFolder folder;
  for (const std::int64_t rank : {1, 2})
    write_shard(folder.path(), 12, rank, {{"0.state.weight.exp_avg", at::ones({2})}});
  looptorch::SnapshotContents contents;
  contents.step = 12;
  contents.shards = {shard_path(folder.path(), 12, 1), shard_path(folder.path(), 12, 2),
                     shard_path(folder.path(), 12, 3)};  // which is missing
  CHECK_THROWS_AS(looptorch::write_snapshot(folder.path(), contents), SnapshotError);
  CHECK(std::filesystem::is_empty(folder.path()));
}
