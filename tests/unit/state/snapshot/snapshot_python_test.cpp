// SPDX-License-Identifier: MIT
// Against the snapshot that tests/parity/snapshot.py wrote without looptorch, and against that script itself
// where a Python with torch and safetensors is there: LOOPTORCH_PARITY_PYTHON, else python3.
// Tests state/snapshot: snapshot
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/snapshot.hpp>
#include <looptorch/state/weights/load_weights.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

namespace fs = std::filesystem;
using looptorch::read_snapshot;
using looptorch::SnapshotContents;
using looptorch::write_snapshot;
using looptorch::testing::bits_equal;
using looptorch::testing::TemporaryFolder;

namespace {

const fs::path kParity = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity";

/// By the formulas of the parity script.
SnapshotContents reference_contents() {
  SnapshotContents contents;
  contents.step = 7;
  const auto weight = torch::arange(6, torch::kFloat).reshape({2, 3}) / 8;
  contents.model = {
      {"weight", weight}, {"count", torch::tensor(3, at::kLong)}, {"half", torch::arange(5, at::kHalf)}};
  contents.averaged = {{"weight", weight + 1}};
  contents.optimizer.set("weight.exp_avg", weight * 2);
  contents.optimizer.set("0.lr", 0.001);
  contents.optimizer.set("0.name", "AdamW");
  contents.state.set("random", torch::arange(100, at::kByte));
  contents.state.set("best", std::numeric_limits<double>::infinity());
  contents.state.set("epoch", 2);
  contents.state.set("name", "\u0928\u093e\u0902\u0935\t\"x\"");
  contents.state.set("none", at::Tensor());
  contents.state.set("on", true);
  contents.state.set("raw", std::string("\x00\xff", 2));
  contents.state.set("time", 0.1);
  return contents;
}

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const at::Tensor& weight) { register_parameter("weight", weight); }
};
TORCH_MODULE(Head);

/// The script's, whose head has the weight of the embedding.
struct Net : torch::nn::Module {
  Net() {
    const auto weight = torch::arange(15, torch::kFloat).reshape({5, 3}) / 8;
    const auto embedding = register_module("embedding", torch::nn::Embedding::from_pretrained(weight));
    register_module("head", Head(embedding->weight));
  }
};

/// The script's exit status; its words go to the test's log.
int run_script(const fs::path& snapshot, const fs::path& folder) {
  const char* named = std::getenv("LOOPTORCH_PARITY_PYTHON");
  const std::string command = std::string(named ? named : "python3") + " '" +
                              (kParity / "snapshot.py").string() + "' '" + snapshot.string() + "' '" +
                              folder.string() + "'";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("snapshot and Python: one that Python wrote is read") {
  CHECK(bits_equal(read_snapshot(kParity / "data/snapshot/step-00000007"), reference_contents()));
}

TEST_CASE("snapshot and Python: what we write is byte for byte what Python wrote") {
  const TemporaryFolder folder;
  const auto path = write_snapshot(folder.path(), reference_contents());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(kParity / "data/snapshot/step-00000007")) {
    CAPTURE(entry.path());
    CHECK(looptorch::read_file(path / entry.path().filename()) == looptorch::read_file(entry.path()));
    ++files;
  }
  CHECK(files == 6);
}

TEST_CASE("snapshot and Python: Python verifies and loads ours, and we load what it writes") {
  const TemporaryFolder folder;
  const Net net;
  SnapshotContents contents;
  contents.step = 7;
  contents.model = looptorch::state_dict(net);
  contents.optimizer.set("weight.exp_avg", torch::ones({5, 3}));
  contents.state.set("epoch", 2);
  const auto path = write_snapshot(folder / "ours", contents);
  fs::create_directory(folder / "theirs");
  const int status = run_script(path, folder / "theirs");
  if (status == 77 || status == 127) {
    WARN("skipped: no Python with torch and safetensors; LOOPTORCH_PARITY_PYTHON may name one");
    return;
  }
  REQUIRE(status == 0);

  const auto expected = torch::arange(15, torch::kFloat).reshape({5, 3}) / 8 + 1;
  auto theirs = read_snapshot(folder / "theirs/step-00000007");
  CHECK(bits_equal(theirs.model.at("embedding.weight"), expected));
  CHECK(theirs.model.at("embedding.weight").is_same(theirs.model.at("head.weight")));
  theirs.model = contents.model;
  CHECK(bits_equal(theirs, contents));

  looptorch::load_weights(net, folder / "theirs/weights.safetensors");
  CHECK(bits_equal(net.named_parameters()["embedding.weight"], expected));
}
