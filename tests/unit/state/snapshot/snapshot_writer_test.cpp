// SPDX-License-Identifier: MIT
// Tests state/snapshot: partial_folder, staging, staging_memory
#include "support/precompiled.hpp"

#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_writer.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::read_snapshot;
using looptorch::SnapshotContents;
using looptorch::SnapshotError;
using looptorch::SnapshotWriter;
using looptorch::testing::bits_equal;
using looptorch::testing::small_contents;
using looptorch::testing::TemporaryFolder;

namespace {

/// Holds the writing thread up until it is opened.
class Gate {
 public:
  void open() { opened_.set_value(); }
  void pass() const { future_.wait(); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> future_ = opened_.get_future().share();
};

/// What is written to stderr while it lives.
class CapturedStderr {
 public:
  explicit CapturedStderr(const fs::path& path) : path_(path), before_(::dup(2)) {
    ::fflush(stderr);
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ::dup2(file, 2);
    ::close(file);
  }
  ~CapturedStderr() {
    ::fflush(stderr);
    ::dup2(before_, 2);
    ::close(before_);
  }
  std::string text() const { return looptorch::read_file(path_); }

 private:
  fs::path path_;
  int before_;
};

/// With copies of the tensors, so that the originals may change.
SnapshotContents deep_copy(SnapshotContents contents) {
  for (auto* tensors : {&contents.model, &contents.averaged}) {
    for (auto& [name, tensor] : *tensors) tensor = tensor.detach().clone();
  }
  for (auto* state : {&contents.optimizer, &contents.state}) {
    for (const auto& [key, tensor] : looptorch::detail::tensors_of(*state)) state->set(key, tensor.clone());
  }
  return contents;
}

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace

TEST_CASE("snapshot writer: contents are those of the moment of begin") {
  const TemporaryFolder folder;
  auto contents = small_contents(7);
  contents.model["large"] = torch::randn({1 << 20});
  contents.model["transposed"] = torch::randn({300, 7}).t();
  contents.model["tied"] = contents.model["large"];
  contents.model["with gradient"] = torch::randn({3}, at::requires_grad());
  contents.averaged["conjugate"] = torch::conj(torch::randn({4}, at::kComplexFloat));
  contents.averaged["empty"] = torch::zeros({0, 3}, at::kBFloat16);
  contents.state.set("undefined", at::Tensor());
  contents.state.set("shared", contents.model["large"]);
  const auto expected = deep_copy(contents);
  SnapshotWriter writer(folder.path());
  writer.begin(contents);
  for (auto& [name, tensor] : contents.model) tensor.detach().fill_(3);
  CHECK(writer.wait() == folder / "step-00000007");
  const auto back = read_snapshot(folder / "step-00000007");
  CHECK(bits_equal(back, expected));
  CHECK(back.model.at("large").is_same(back.model.at("tied")));
  CHECK(writer.wait() == std::nullopt);
}

TEST_CASE("snapshot writer: of a tensor that is copied in pieces every element arrives") {
  const TemporaryFolder folder;
  SnapshotContents contents = small_contents(1);
  constexpr std::int64_t kPiece = 1 << 20;  // bytes
  for (const std::int64_t bytes : {kPiece - 1, kPiece, kPiece + 1, 2 * kPiece + 7})
    contents.model["of " + std::to_string(bytes)] =
        (torch::arange(bytes) % 251).to(at::kByte) + 1;  // no byte is 0
  const auto expected = deep_copy(contents);
  SnapshotWriter writer(folder.path());
  writer.begin(contents);
  const auto read = read_snapshot(writer.wait().value());
  for (const auto& [name, tensor] : expected.model) CHECK(bits_equal(read.model.at(name), tensor));
}

TEST_CASE("snapshot writer: it continues while it writes, tells when it is done, and writes one at a time") {
  const TemporaryFolder folder;
  Gate gate;
  std::atomic<int> writing = 0, most = 0;
  SnapshotWriter writer(folder.path(), {.on_written = [&](const fs::path&) {
                          most = std::max<int>(most, ++writing);
                          gate.pass();
                          --writing;
                        }});
  CHECK(writer.begin(small_contents(1)) == std::nullopt);
  CHECK(writer.poll() == std::nullopt);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  const auto second = writer.begin(small_contents(2));
  opener.join();
  CHECK(second == folder / "step-00000001");
  CHECK(writer.wait() == folder / "step-00000002");
  CHECK(most == 1);
  CHECK(bits_equal(read_snapshot(folder / "step-00000001"), small_contents(1)));
  CHECK(bits_equal(read_snapshot(folder / "step-00000002"), small_contents(2)));
}

TEST_CASE("snapshot writer: poll gives the path once it is written, once") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  CHECK(writer.poll() == std::nullopt);
  writer.begin(small_contents(1));
  std::optional<fs::path> written;
  while (!(written = writer.poll())) std::this_thread::yield();
  CHECK(written == folder / "step-00000001");
  CHECK(writer.poll() == std::nullopt);
}

TEST_CASE("snapshot writer: an error of writing surfaces at the next call, typed, once, and harms nothing") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder / "runs");
  writer.begin(small_contents(1));
  writer.wait();
  looptorch::write_file_atomically(folder / "runs/step-00000002", "in the way");
  writer.begin(small_contents(2));
  SECTION("at wait") { CHECK_THROWS_AS(writer.wait(), SnapshotError); }
  SECTION("at poll") {
    const auto poll_to_end = [&] {
      while (!writer.poll()) std::this_thread::yield();
    };
    CHECK_THROWS_WITH(poll_to_end(), Contains("step-00000002: cannot create: Not a directory"));
  }
  SECTION("at begin") { CHECK_THROWS_AS(writer.begin(small_contents(3)), SnapshotError); }
  CHECK(writer.poll() == std::nullopt);
  CHECK(looptorch::find_newest_snapshot(folder / "runs").path == folder / "runs/step-00000001");
  writer.begin(small_contents(3));
  CHECK(writer.wait() == folder / "runs/step-00000003");
  CHECK(bits_equal(read_snapshot(folder / "runs/step-00000001"), small_contents(1)));
}

TEST_CASE("snapshot writer: contents that cannot be kept are refused at begin") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  auto contents = small_contents(1);
  contents.model["sparse"] = torch::zeros({2, 2}).to_sparse();
  CHECK_THROWS_WITH(writer.begin(contents), Contains("tensor \"sparse\": is sparse or nested"));
  CHECK_THROWS_AS(writer.begin(small_contents(-1)), looptorch::UsageError);
  CHECK(writer.wait() == std::nullopt);
  CHECK(folder.entries() == 0);
}

TEST_CASE(
    "snapshot writer: files are put together in the background: one that is too long is an error of writing") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  auto contents = small_contents(1);
  contents.state.set("text", std::string((std::size_t{1} << 26) + 1, 'x'));
  CHECK_NOTHROW(writer.begin(contents));
  CHECK_THROWS_WITH(writer.wait(), Contains("state.json") && Contains("more than the 67108864 allowed"));
  CHECK(folder.entries() == 0);
}

TEST_CASE("snapshot writer: a name that is not UTF-8 is refused at begin, with its file") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  auto contents = small_contents(1);
  contents.state.set("bad\xff", 1);
  CHECK_THROWS_WITH(writer.begin(contents),
                    Contains("state.json: the name \"bad") && Contains("is not UTF-8"));
  contents = small_contents(1);
  contents.optimizer.set("bad\xff", torch::zeros({1}));
  CHECK_THROWS_WITH(writer.begin(contents), Contains("optimizer.safetensors: the name \"bad"));
}

TEST_CASE("snapshot writer: where no memory can be pinned, a block is pageable") {
  looptorch::detail::StagingMemory memory;
  memory.reserve_pinned(std::size_t{1} << 16);
  CHECK(memory.is_pinned() == at::globalContext().hasCUDA());
  REQUIRE(memory.data() != nullptr);
  memory.data()[(1 << 16) - 1] = 'x';
  const auto* before = memory.data();
  memory.reserve_pinned(1 << 10);
  CHECK(memory.data() == before);
}

TEST_CASE("snapshot writer: what LibTorch throws at a copy is typed, names the folder, and is over then") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  auto contents = small_contents(1);
  contents.model["nowhere"] = torch::empty({2}, torch::kMeta);
  CHECK_THROWS_AS(writer.begin(contents), SnapshotError);
  CHECK_THROWS_WITH(writer.begin(contents), Contains(folder.path().string()) && Contains("eta"));
  CHECK(folder.entries() == 0);
  writer.begin(small_contents(2));
  CHECK(writer.wait() == folder / "step-00000002");
}

TEST_CASE("snapshot writer: on_written prunes, and what it throws surfaces") {
  const TemporaryFolder folder;
  bool fails = false;
  fs::path written;
  SnapshotWriter writer(folder.path(), {.on_written = [&](const fs::path& path) {
                          written = path;
                          looptorch::prune_snapshots(folder.path(), 2);
                          if (fails) throw std::runtime_error("pruned too much");
                        }});
  for (std::int64_t step = 1; step <= 4; ++step) writer.begin(small_contents(step));
  writer.wait();
  CHECK(written == folder / "step-00000004");
  CHECK(folder.entries() == 2);
  fails = true;
  writer.begin(small_contents(5));
  CHECK_THROWS_MATCHES(writer.wait(), std::runtime_error, Catch::Matchers::Message("pruned too much"));
  CHECK(looptorch::find_newest_snapshot(folder.path()).path == folder / "step-00000005");
}

TEST_CASE("snapshot writer: the destructor finishes the snapshot and swallows no error") {
  const TemporaryFolder folder;
  { SnapshotWriter(folder.path()).begin(small_contents(1)); }
  CHECK_NOTHROW(looptorch::verify_snapshot(folder / "step-00000001"));
  looptorch::write_file_atomically(folder / "step-00000002", "in the way");
  std::string lost;
  {
    SnapshotWriter writer(folder.path(), {.on_lost_error = [&](const std::string& error) { lost = error; }});
    writer.begin(small_contents(2));
  }
  CHECK_THAT(lost, Contains("step-00000002: cannot create: Not a directory"));

  std::string told;
  {
    const CapturedStderr captured(folder / "stderr.txt");
    SnapshotWriter(folder.path()).begin(small_contents(2));
    told = captured.text();
  }
  CHECK_THAT(told, Contains("looptorch: ") && Contains("step-00000002: cannot create: Not a directory\n"));
}

TEST_CASE("snapshot writer: memory is taken once, and before the first snapshot if it is prepared") {
  SnapshotContents contents;
  contents.model["weight"] = torch::randn({8 << 20});
  looptorch::detail::Staging staging;
  const bool is_prepared = GENERATE(true, false);
  if (is_prepared) staging.reserve(contents);
  const auto before = page_faults();
  const auto first = staging.copy(contents).model.at("weight");
  if (is_prepared) CHECK(page_faults() - before < 8);
  const auto later = page_faults();
  for (int i = 0; i < 3; ++i) CHECK(staging.copy(contents).model.at("weight").data_ptr() == first.data_ptr());
  CHECK(page_faults() - later < 8);

  contents.optimizer.set("moment", torch::randn({1 << 20}));
  const auto grown = staging.copy(contents);
  CHECK(bits_equal(grown, contents));
}

TEST_CASE("snapshot writer: prepared for other contents, it writes what it is given") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  auto unsound = small_contents(1);
  unsound.model["sparse"] = torch::zeros({2, 2}).to_sparse();
  CHECK_THROWS_AS(writer.prepare(unsound), SnapshotError);
  writer.prepare(small_contents(1));
  auto larger = small_contents(2);
  larger.model["large"] = torch::randn({1 << 18});
  writer.begin(larger);
  writer.prepare(small_contents(1));
  CHECK(bits_equal(read_snapshot(folder / "step-00000002"), larger));
}

TEST_CASE("snapshot writer: where there is no memory for the copy, the error is typed") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  auto contents = small_contents(1);
  contents.model["huge"] = torch::zeros({1}).expand({std::int64_t{1} << 50});
  CHECK_THROWS_WITH(writer.begin(contents), Contains("no memory for a snapshot of 4503599627370"));
  try {
    writer.begin(contents);
    FAIL("nothing was thrown");
  } catch (const SnapshotError&) {
    CHECK(looptorch::detail::is_out_of_memory(std::current_exception()));
  }
  writer.begin(small_contents(1));
  CHECK(writer.wait() == folder / "step-00000001");
}

TEST_CASE("stream copy: does what memcpy does, whatever the place and the size") {
  std::vector<char> from(1000), to(1000), expected(1000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + 1);
  for (const std::size_t target : {0, 1, 8, 16, 17}) {
    for (const std::size_t source : {0, 1, 16, 63}) {
      for (const std::size_t size : {0, 1, 63, 64, 65, 127, 128, 640, 700}) {
        CAPTURE(target, source, size);
        std::fill(to.begin(), to.end(), 'x'), std::fill(expected.begin(), expected.end(), 'x');
        std::memcpy(expected.data() + target, from.data() + source, size);
        looptorch::detail::nontemporal_copy(to.data() + target, from.data() + source, size);
        CHECK(to == expected);
      }
    }
  }
}

TEST_CASE("snapshot writer: what was written before memory is prepared is still told, once") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  writer.begin(small_contents(1));
  writer.prepare(small_contents(2));
  CHECK(writer.poll() == folder / "step-00000001");
  CHECK(writer.wait() == std::nullopt);
}
