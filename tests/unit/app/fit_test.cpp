// SPDX-License-Identifier: MIT
// A program that resumes reads its snapshot once, from the flag to the first step, and trains with what it
// verified.
#include "support/precompiled.hpp"

#include <looptorch/app/fit.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/policies/snapshot_every.hpp>
#include <looptorch/trainer.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

at::Tensor objective(torch::nn::Linear& net, const at::Tensor& batch) { return net(batch).pow(2).mean(); }

/// Ranges of batches that are made before a count of bytes begins.
const std::vector<at::Tensor>& batches() {
  static const std::vector<at::Tensor> all{torch::full({2, 256}, 0.5), torch::full({2, 256}, -0.25)};
  return all;
}

/// Trains up to `steps` in a new process's objects. Returns the weights.
at::Tensor train(const fs::path& folder, std::int64_t steps, const app::TrainingOptions& program,
                 const lt::ResumeFrom& snapshot = {}) {
  torch::manual_seed(1);
  torch::nn::Linear net(256, 256);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, optimizer, objective,
                      lt::SnapshotEvery{.folder = folder, .keep = 0, .on_signals = false});
  app::TrainingOptions options = program;
  options.epochs = 9, options.max_steps = steps;
  (void)app::fit(trainer, batches(), options, snapshot);
  return net->weight.detach().clone();
}

/// A run of 2 steps, whose snapshot has some 800 KB.
struct Saved {
  Saved() { (void)train(folder.path(), 2, {}); }

  [[nodiscard]] fs::path path() const { return folder / "step-00000002"; }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& file : fs::directory_iterator(path())) sum += file.file_size();
    return sum;
  }

  TemporaryFolder folder;
};

/// Returns the bytes that this process has read from files so far.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t bytes = 0;
  io >> name >> bytes;
  REQUIRE(name == "rchar:");
  return bytes;
}

}  // namespace

TEST_CASE("A resumed program reads each byte of its snapshot once, and twice where dry steps come between") {
  const at::Tensor uncut = train(TemporaryFolder().path(), 4, {});
  for (const bool preflight : {false, true}) {
    const Saved saved;
    for (const std::string& resume :
         {std::string("auto"), saved.path().string(), saved.folder.path().string()}) {
      const app::TrainingOptions program{.preflight = preflight, .resume = resume};
      INFO(resume << (preflight ? ", preflight" : ""));
      TemporaryFolder elsewhere;
      const std::uint64_t before = bytes_read();
      const auto newest =
          program.snapshot_to_resume(resume == "auto" ? saved.folder.path() : elsewhere.path());
      const at::Tensor weight = train(elsewhere.path(), 4, program, newest);
      const std::uint64_t read = bytes_read() - before, once = saved.bytes();
      CHECK(torch::equal(weight, uncut));
      CHECK(read >= (preflight ? 2 : 1) * once);
      CHECK(read < (preflight ? 2 : 1) * once + once / 4);
    }
  }
}

TEST_CASE("What was verified is what is taken over, whatever becomes of the files") {
  const at::Tensor uncut = train(TemporaryFolder().path(), 4, {});
  const Saved saved;
  const app::TrainingOptions program{.resume = "auto"};
  const auto newest = program.snapshot_to_resume(saved.folder.path());
  fs::resize_file(saved.path() / "model.safetensors", 100);
  fs::remove(saved.path() / "optimizer.safetensors");
  TemporaryFolder elsewhere;
  CHECK(torch::equal(train(elsewhere.path(), 4, program, newest), uncut));
  CHECK_FALSE(newest.held->has_value());  // all copies gave it up
  TemporaryFolder another;
  CHECK_THROWS_AS(train(another.path(), 4, program, newest), lt::SnapshotError);  // read again: damaged now
}

TEST_CASE("A snapshot that is held takes no more memory at its peak than one that fit reads") {
  const Saved saved;
  lt::HostMemory& memory = lt::HostMemory::counted();
  const auto peak = [&](bool held) {
    const app::TrainingOptions program{.resume = "auto"};
    TemporaryFolder elsewhere;
    memory.reset_peak();
    const std::int64_t before = memory.allocated_bytes();
    const lt::ResumeFrom from =
        held ? lt::ResumeFrom(program.snapshot_to_resume(saved.folder.path())) : lt::ResumeFrom(saved.path());
    (void)train(elsewhere.path(), 3, program, from);
    return memory.peak_bytes() - before;
  };
  const std::int64_t read_by_fit = peak(false);
  CHECK(peak(true) <= read_by_fit);
}
