// SPDX-License-Identifier: MIT
// Snapshots of what is on a device: copied in the order of its stream into pinned memory, and written from
// there.
// Tests base/device: nontemporal_copy
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_writer.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "support/device.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using namespace looptorch::testing;

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

TEST_CASE("a snapshot is of the moment of begin, though the device computes on") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const auto expected = contents_on(at::kCPU);
  lt::SnapshotWriter writer(folder.path());
  for (const bool is_prepared : {true, false}) {
    auto contents = contents_on(test_device());
    if (is_prepared) writer.prepare(contents);
    writer.begin(contents);
    for (auto& [name, tensor] : contents.model) tensor.add_(1);  // in the same stream, so behind the copy
    const auto path = writer.wait().value();
    const auto back = lt::read_snapshot(path);
    CHECK(bits_equal(back, expected));
    CHECK(back.model.at("large").is_same(back.model.at("tied")));
  }
}

TEST_CASE("a snapshot has the values of device tensors that are conjugated or negated when they are read") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const at::Tensor numbers = torch::complex(torch::randn({700}), torch::randn({700}));
  const at::Tensor there = numbers.to(test_device());
  lt::SnapshotContents contents;
  contents.model["conjugate"] = there.conj();
  contents.model["negative"] = at::_neg_view(there);
  lt::SnapshotWriter writer(folder.path());
  writer.begin(contents);
  const auto back = lt::read_snapshot(writer.wait().value());
  CHECK(torch::equal(back.model.at("conjugate"), numbers.conj().resolve_conj()));
  CHECK(torch::equal(back.model.at("negative"), -numbers));
}

TEST_CASE("device tensors are written without a writer, and with CPU tensors first") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const auto expected = contents_on(at::kCPU);
  CHECK(bits_equal(lt::read_snapshot(lt::write_snapshot(folder / "plain", contents_on(test_device()))),
                   expected));
  lt::SnapshotWriter writer(folder.path());
  writer.begin(expected);                    // in memory that is not pinned
  writer.begin(contents_on(test_device()));  // in memory that is
  CHECK(bits_equal(lt::read_snapshot(writer.wait().value()), expected));
}

TEST_CASE("weights leave a device and come back to it as they were") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  auto net = toy::net(1), on_cpu = toy::net(2), there = toy::net(3);
  net->to(test_device()), there->to(test_device());
  lt::save_weights(net, folder / "model.safetensors");
  lt::load_weights(on_cpu, folder / "model.safetensors");
  lt::load_weights(there, folder / "model.safetensors");
  CHECK(there->first->weight.device() == test_device());
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    CHECK(bits_equal(on_cpu->parameters()[i], net->parameters()[i].cpu()));
    CHECK(bits_equal(there->parameters()[i].cpu(), net->parameters()[i].cpu()));
  }
}
