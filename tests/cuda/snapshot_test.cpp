// SPDX-License-Identifier: MIT
// Snapshots of what is on a device: copied in the order of its stream into pinned memory, and written from
// there.
// Tests base/device: stream_copy
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_writer.hpp>

#include "support/cuda.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

namespace lt = looptorch;
using looptorch::testing::bits_equal;
using looptorch::testing::TemporaryFolder;

namespace {

/// Of both, since a run has them.
lt::SnapshotContents contents_on(at::Device device) {
  lt::SnapshotContents contents;
  contents.step = 7;
  contents.model["large"] = torch::arange(1 << 22, torch::kFloat).to(device);
  contents.model["tied"] = contents.model["large"];
  contents.model["transposed"] = torch::arange(30, torch::kDouble).reshape({5, 6}).to(device).t();
  contents.model["half"] = torch::arange(9, torch::kHalf).to(device);
  contents.model["empty"] = torch::zeros({0, 2}).to(device);
  contents.state.set("random", torch::arange(16, torch::kByte));
  contents.optimizer.set("step", torch::tensor(3.0F).to(device));
  return contents;
}

}  // namespace

TEST_CASE("cuda: a snapshot is of the moment of begin, though the device computes on") {
  if (!has_cuda()) return;
  const TemporaryFolder folder;
  const auto expected = contents_on(at::kCPU);
  lt::SnapshotWriter writer(folder.path());
  for (const bool is_prepared : {true, false}) {
    auto contents = contents_on(at::kCUDA);
    if (is_prepared) writer.prepare(contents);
    writer.begin(contents);
    for (auto& [name, tensor] : contents.model) tensor.add_(1);  // in the same stream, so behind the copy
    const auto path = writer.wait().value();
    const auto back = lt::read_snapshot(path);
    CHECK(bits_equal(back, expected));
    CHECK(back.model.at("large").is_same(back.model.at("tied")));
  }
}

TEST_CASE("cuda: written without a writer, and with CPU tensors first") {
  if (!has_cuda()) return;
  const TemporaryFolder folder;
  const auto expected = contents_on(at::kCPU);
  CHECK(
      bits_equal(lt::read_snapshot(lt::write_snapshot(folder / "plain", contents_on(at::kCUDA))), expected));
  lt::SnapshotWriter writer(folder.path());
  writer.begin(expected);                // in memory that is not pinned
  writer.begin(contents_on(at::kCUDA));  // in memory that is
  CHECK(bits_equal(lt::read_snapshot(writer.wait().value()), expected));
}
