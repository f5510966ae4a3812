// SPDX-License-Identifier: MIT
// --memory-snapshot with a stand-in for CUDA's allocator.
#include "support/precompiled.hpp"

#include <looptorch/app/device/memory_snapshot.hpp>
#include <looptorch/base/files/file.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <functional>
#include <string>

namespace app = looptorch::app;
namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::testing::CapturedStderr, looptorch::testing::TemporaryFolder;

namespace {

/// An allocator whose record is a text.
struct StandIn {
  std::string text = "first";
  std::function<void()> ran_out;
  [[nodiscard]] app::MemoryRecord record() {
    return {.begin = [this](std::function<void()> call) { ran_out = std::move(call); },
            .read = [this] { return text; }};
  }
};

}  // namespace

TEST_CASE("memory snapshot: the record is written as training ends") {
  const TemporaryFolder folder;
  const auto file = folder / "memory.pickle";
  StandIn allocator;
  const CapturedStderr captured;
  {
    const app::MemorySnapshot snapshot(file, allocator.record());
    allocator.text = "last";
    CHECK_FALSE(fs::exists(file));
  }
  CHECK(looptorch::read_file(file) == "last");
  CHECK(captured.text() == "the memory is in " + file.string() + ", for https://pytorch.org/memory_viz\n");
}

TEST_CASE("memory snapshot: what was written when memory ran out stays, and a later one replaces it") {
  const TemporaryFolder folder;
  const auto file = folder / "memory.pickle";
  StandIn allocator;
  const CapturedStderr captured;
  {
    const app::MemorySnapshot snapshot(file, allocator.record());
    allocator.ran_out();
    CHECK(looptorch::read_file(file) == "first");
    allocator.text = "second";
    allocator.ran_out();
    allocator.text = "after the end";
  }
  CHECK(looptorch::read_file(file) == "second");
  CHECK_THAT(captured.text(), Contains("the memory when memory ran out is in " + file.string()));
  allocator.ran_out();  // LibTorch keeps the call for the life of the process
  CHECK(looptorch::read_file(file) == "second");
}

TEST_CASE("memory snapshot: a file that cannot be written is a line on stderr, and what was there stays") {
  const TemporaryFolder folder;
  const auto file = folder / "memory.pickle";
  looptorch::write_file_atomically(file, "of an earlier run");
  StandIn allocator;
  auto record = allocator.record();
  record.read = []() -> std::string { throw looptorch::Error("no record"); };
  const CapturedStderr captured;
  {
    const app::MemorySnapshot snapshot(file, record);
    allocator.ran_out();
  }
  CHECK(looptorch::read_file(file) == "of an earlier run");
  CHECK_THAT(captured.text(), Contains("--memory-snapshot: no record\n"));
}

TEST_CASE("memory snapshot: what cannot be had is refused before a run begins") {
  const TemporaryFolder folder;
  StandIn allocator;
  const auto check = [&](const fs::path& file, at::Device device = at::kCUDA) {
    app::check_memory_snapshot(file, device, allocator.record());
  };
  CHECK_NOTHROW(check("", at::kCPU));
  CHECK_NOTHROW(check(folder / "memory.pickle"));
  CHECK_NOTHROW(check("memory.pickle"));
  CHECK_THROWS_WITH(
      check(folder / "memory.pickle", at::kCPU),
      "--memory-snapshot needs a CUDA device, whose allocator keeps the record, and this run is on "
      "cpu: --memory says what memory consists of on any device");
  CHECK_THROWS_WITH(check(folder.path()), Contains("is a folder: name a file in it"));
  CHECK_THROWS_WITH(check(folder / "none" / "a"),
                    Contains("there is no folder " + (folder / "none").string()));
  CHECK_THROWS_WITH(app::check_memory_snapshot(folder / "a", at::kCUDA, app::MemoryRecord{}),
                    Contains("without the CUDA Toolkit's headers"));
}
