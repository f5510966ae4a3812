// SPDX-License-Identifier: MIT
// Measures the pause of training for a snapshot of 500 MB: 125 tensors of 4 MB, written in the background.
//
//   snapshot FOLDER   takes a snapshot in FOLDER for each line on stdin, and answers with a JSON object;
//                     snapshot.py, the peer, sends them and takes turns
#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_writer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

namespace lt = looptorch;

namespace {

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

lt::SnapshotContents make_contents() {
  lt::SnapshotContents contents;
  for (int i = 0; i < 125; ++i) contents.model[lt::message('p', i)] = torch::randn({1 << 20});
  return contents;
}

/// Changes the contents like a training step, so that the next snapshot differs.
void change(lt::SnapshotContents& contents) {
  ++contents.step;
  for (auto& [name, tensor] : contents.model) tensor.add_(1e-3);
}

void check_written(const std::filesystem::path& path, const lt::SnapshotContents& contents) {
  const auto back = lt::read_snapshot(path);
  for (const auto& [name, tensor] : contents.model) {
    if (!torch::equal(tensor, back.model.at(name))) throw std::runtime_error(name + " came back changed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : ".";
  auto contents = make_contents();
  std::filesystem::path written;
  lt::SnapshotWriter writer(folder);
  writer.prepare(contents);
  writer.wait();  // as during the steps before the first snapshot
  for (std::string line; std::getline(std::cin, line);) {
    change(contents);
    const auto begin = std::chrono::steady_clock::now();
    writer.begin(contents);
    const double stand_still = ms_since(begin);
    written = writer.wait().value();
    std::printf("{\"stand_still\": %.3f, \"durable\": %.3f}\n", stand_still, ms_since(begin));
    std::fflush(stdout);
    lt::prune_snapshots(folder, 1);
  }
  check_written(written, contents);
  lt::prune_snapshots(folder, 0);
}
