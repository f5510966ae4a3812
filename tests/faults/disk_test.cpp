// SPDX-License-Identifier: MIT
// Snapshots on a disk that fails. Whatever system call fails, or is the last of a killed process, afterwards
// the newest snapshot is the old one or the new one, bit for bit, and what was left over can be swept.
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_writer.hpp>

#include "disk_shim.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::find_newest_snapshot;
using looptorch::read_snapshot;
using looptorch::SnapshotContents;
using looptorch::SnapshotError;
using looptorch::SnapshotWriter;
using looptorch::sweep_unfinished;
using looptorch::write_snapshot;
using looptorch::testing::bits_equal;
using looptorch::testing::DiskFault;
using looptorch::testing::FaultyDisk;
using looptorch::testing::small_contents;
using looptorch::testing::TemporaryFolder;

namespace {

/// In memory, where that can be: these are thousands of small files.
const int kInMemory = ::access("/dev/shm", W_OK) == 0 ? ::setenv("TMPDIR", "/dev/shm", 0) : 0;

/// What a scenario does while the disk fails, in a folder that `prepare` has filled.
struct Scenario {
  const char* name;
  std::function<void(const fs::path&)> prepare, run;
  /// The newest snapshot before, if any, and after, by step and seed.
  std::vector<SnapshotContents> before, after;
  DiskFault disk{};
};

/// `contents` is the newest in the folder, or there is none and `contents` is empty.
bool is_newest(const fs::path& folder, const std::vector<SnapshotContents>& contents) {
  const auto newest = find_newest_snapshot(folder).path;
  if (newest.empty() || contents.empty()) return newest.empty() && contents.empty();
  return bits_equal(read_snapshot(newest), contents.front());
}

void write_quickly(const fs::path& folder, const SnapshotContents& contents) {
  const FaultyDisk without_waiting;
  write_snapshot(folder, contents);
}

/// Damaged so that only reading the tensors tells.
void damage(const fs::path& snapshot) {
  auto bytes = looptorch::read_file(snapshot / "model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  fs::remove(snapshot / "model.safetensors");
  std::ofstream(snapshot / "model.safetensors", std::ios::binary) << bytes;
}

std::vector<Scenario> scenarios() {
  const auto write = [](std::int64_t step, std::int64_t seed) {
    return [=](const fs::path& folder) { write_snapshot(folder, small_contents(step, seed)); };
  };
  const auto nothing = [](const fs::path&) {};
  const auto with_damaged = [](const fs::path& folder) {
    write_quickly(folder, small_contents(1));
    write_quickly(folder, small_contents(2));
    damage(folder / "step-00000002");
  };
  const auto old = small_contents(1), next = small_contents(2), other = small_contents(1, 3);
  return {
      {"the first", nothing, write(1, 0), {}, {old}},
      {"a next", [=](auto& folder) { write_quickly(folder, old); }, write(2, 0), {old}, {next}},
      {"the same step", [=](auto& folder) { write_quickly(folder, old); }, write(1, 3), {old}, {other}},
      {"the same step, damaged", with_damaged, write(2, 0), {old}, {next}},
      {"the same step, damaged, not to be exchanged",
       with_damaged,
       write(2, 0),
       {old},
       {next},
       {.no_exchange = true}},
      {"without locks",
       [=](auto& folder) { write_quickly(folder, old); },
       write(2, 0),
       {old},
       {next},
       {.no_locks = true}},
  };
}

/// How many calls the scenario makes if nothing goes wrong.
int count_calls(const Scenario& scenario) {
  const TemporaryFolder folder;
  scenario.prepare(folder.path());
  const FaultyDisk disk(scenario.disk);
  scenario.run(folder.path());
  return static_cast<int>(disk.calls().size());
}

/// Runs `work` in a child of this process; its exit status, 0 if it returns and 1 if it throws SnapshotError,
/// or minus the signal that ended it.
int run_in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
      ::_exit(0);
    } catch (const SnapshotError&) {
      ::_exit(1);
    } catch (...) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// Runs the scenario with call `at` of the disk at fault; true if it threw SnapshotError.
bool run_with_fault(const Scenario& scenario, const fs::path& folder, DiskFault::Kind kind, int at,
                    int error = EIO) {
  scenario.prepare(folder);
  auto fault = scenario.disk;
  fault.kind = kind, fault.at = at, fault.error = error;
  const auto run = [&] {
    const FaultyDisk disk(fault);
    scenario.run(folder);
  };
  if (kind == DiskFault::kill) {
    REQUIRE(run_in_child(run) == -SIGKILL);
    return true;
  }
  try {
    run();
    return false;
  } catch (const SnapshotError&) {
    return true;
  }
}

/// The folder has the old newest snapshot or, unless the run was without error, the new one; and nothing that
/// cannot be swept.
void check_after(const Scenario& scenario, const fs::path& folder, bool failed) {
  const bool is_right = is_newest(folder, scenario.after) || (failed && is_newest(folder, scenario.before));
  CHECK(is_right);
  sweep_unfinished(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    CAPTURE(entry.path());
    CHECK(looptorch::detail::step_of(entry.path().filename().string()).has_value());
  }
}

}  // namespace

TEST_CASE(
    "faulty disk: whichever call fails, the old snapshot or the new one is there, and the error is typed") {
  for (const auto& scenario : scenarios()) {
    const int calls = count_calls(scenario);
    CHECK(calls >= 40);
    for (const int error : {ENOSPC, EIO, EACCES, EDQUOT}) {
      for (int at = 0; at < calls; ++at) {
        CAPTURE(scenario.name, error, at);
        const TemporaryFolder folder;
        check_after(scenario, folder.path(),
                    run_with_fault(scenario, folder.path(), DiskFault::fail, at, error));
      }
    }
  }
}

TEST_CASE("faulty disk: whichever call is the last, the old snapshot or the new one is there") {
  for (const auto& scenario : scenarios()) {
    const int calls = count_calls(scenario);
    for (const auto kind : {DiskFault::crash, DiskFault::power_failure}) {
      for (int at = 0; at < calls; ++at) {
        CAPTURE(scenario.name, kind, at);
        const TemporaryFolder folder;
        check_after(scenario, folder.path(), run_with_fault(scenario, folder.path(), kind, at));
      }
    }
  }
}

TEST_CASE("faulty disk: the same where the process is really killed, at each fifth call") {
  int number = 0;
  for (const auto& scenario : scenarios()) {
    const int calls = count_calls(scenario);
    for (int at = 0; at < calls; ++at) {
      if (number++ % 5 != 0) continue;
      CAPTURE(scenario.name, at);
      const TemporaryFolder folder;
      check_after(scenario, folder.path(), run_with_fault(scenario, folder.path(), DiskFault::kill, at));
    }
  }
}

TEST_CASE("faulty disk: whichever call of a removal fails or is the last, no snapshot is left in part") {
  const auto prepare = [](const fs::path& folder) {
    for (std::int64_t step = 1; step <= 3; ++step) write_quickly(folder, small_contents(step));
  };
  const auto prune = [](const fs::path& folder) { looptorch::prune_snapshots(folder, 1); };
  const auto sweep = [](const fs::path& folder) { sweep_unfinished(folder); };
  const auto prepare_sweep = [=](const fs::path& folder) {
    prepare(folder);
    fs::rename(folder / "step-00000002", folder / "step-00000002.deleted-1-1");
    fs::rename(folder / "step-00000001", folder / "step-00000001.partial-1-2");
  };
  const auto newest = std::vector{small_contents(3)};
  for (const auto& scenario : {Scenario{"prune", prepare, prune, newest, newest},
                               Scenario{"sweep", prepare_sweep, sweep, newest, newest}}) {
    const int calls = count_calls(scenario);
    CHECK(calls > 20);
    for (const auto kind : {DiskFault::fail, DiskFault::crash}) {
      for (int at = 0; at < calls; ++at) {
        CAPTURE(scenario.name, kind, at);
        const TemporaryFolder folder;
        check_after(scenario, folder.path(), run_with_fault(scenario, folder.path(), kind, at));
        for (const auto& snapshot : looptorch::list_snapshots(folder.path())) {
          CHECK_NOTHROW(looptorch::verify_snapshot(snapshot.path));
        }
        prune(folder.path());
        CHECK(folder.entries() == 1);
      }
    }
  }
}

TEST_CASE("faulty disk: what a snapshot relies on is synced before it is relied on") {
  const TemporaryFolder folder;
  std::vector<std::string> calls;
  {
    const FaultyDisk disk;
    write_snapshot(folder / "runs", small_contents(7));
    calls = disk.calls();
  }
  const auto target = (folder / "runs/step-00000007").string();
  const auto find = [&](const std::string& beginning, std::size_t from = 0) {
    const auto found = std::find_if(calls.begin() + static_cast<std::ptrdiff_t>(from), calls.end(),
                                    [&](const std::string& call) { return call.starts_with(beginning); });
    return static_cast<std::size_t>(found - calls.begin());
  };
  const auto renamed = find("rename ");
  REQUIRE(renamed < calls.size());
  const auto partial = calls[renamed].substr(7, calls[renamed].find(' ', 7) - 7);
  CHECK(calls[renamed] == "rename " + partial + " " + target);
  CHECK(partial.starts_with(target + ".partial-"));
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(target)) {
    const auto path = partial + "/" + entry.path().filename().string();
    CAPTURE(path);
    const auto created = find("create " + path), synced = find("fsync " + path);
    CHECK(created < synced);
    CHECK(find("write " + path) < synced);
    CHECK(find("write " + path, synced) == calls.size());
    CHECK(synced < find("fsync " + partial, find("fsync " + partial + "/manifest.json") + 1));
    ++files;
  }
  CHECK(files == 6);
  const auto folder_synced = find("fsync " + partial, find("fsync " + partial + "/manifest.json") + 1);
  CHECK(folder_synced < renamed);
  CHECK(find("fsync " + (folder / "runs").string(), renamed) < calls.size());
  CHECK(find("fsync " + folder.path().string()) < find("mkdir " + target));
}

TEST_CASE("faulty disk: a disk that is full after any number of bytes") {
  const TemporaryFolder folder;
  write_quickly(folder.path(), small_contents(1));
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder / "step-00000001")) bytes += entry.file_size();
  for (std::uint64_t after = 0; after < bytes; ++after) {
    CAPTURE(after);
    {
      const FaultyDisk disk({.full_after = after});
      CHECK_THROWS_WITH(write_snapshot(folder.path(), small_contents(2)),
                        Contains("No space left on device"));
    }
    CHECK(folder.entries() == 1);
  }
  CHECK(is_newest(folder.path(), {small_contents(1)}));
  const FaultyDisk disk({.full_after = bytes});
  CHECK_NOTHROW(write_snapshot(folder.path(), small_contents(2)));
}

TEST_CASE("faulty disk: writes that take a few bytes at a time add up") {
  const TemporaryFolder folder;
  {
    const FaultyDisk disk({.longest_write = 7});
    write_snapshot(folder.path(), small_contents(1));
  }
  CHECK(is_newest(folder.path(), {small_contents(1)}));
}

TEST_CASE(
    "faulty disk: a write that takes nothing and reports no error is an error, not a loop without end") {
  const TemporaryFolder folder;
  const FaultyDisk disk({.writes_nothing = true});
  CHECK_THROWS_WITH(write_snapshot(folder.path(), small_contents(1)), Contains("cannot write"));
}

TEST_CASE("faulty disk: a signal in the middle of a write, a sync or a lock does no harm") {
  const TemporaryFolder folder;
  const auto contents = small_contents(1);
  const auto write = [&](DiskFault fault) {
    const FaultyDisk disk(fault);
    write_snapshot(folder.path(), contents);
    return disk.calls();
  };
  const auto calls = (write({}), write({}));
  int interrupted = 0;
  for (std::size_t at = 0; at < calls.size(); ++at) {
    const auto& call = calls[at];
    if (!call.starts_with("write") && !call.starts_with("fsync") && !call.starts_with("flock")) continue;
    CAPTURE(call);
    CHECK(write({.at = static_cast<int>(at), .error = EINTR}).size() == calls.size() + 1);
    ++interrupted;
  }
  CHECK(interrupted >= 18);
  CHECK(is_newest(folder.path(), {contents}));
}

TEST_CASE("faulty disk: one that does not know its size is tried") {
  const TemporaryFolder folder;
  {
    const FaultyDisk disk({.knows_no_size = true});
    write_snapshot(folder.path(), small_contents(1));
  }
  CHECK(is_newest(folder.path(), {small_contents(1)}));
}

TEST_CASE("faulty disk: the device that is always full") {
  const TemporaryFolder folder;
  write_quickly(folder.path(), small_contents(1));
  for (const char* name : {"manifest.json", "model.safetensors", "state.json"}) {
    const FaultyDisk disk({.full_file = name});
    CHECK_THROWS_WITH(
        write_snapshot(folder.path(), small_contents(2)),
        (folder / "step-00000002").string() + "/" + name + ": cannot write: No space left on device");
  }
  CHECK(is_newest(folder.path(), {small_contents(1)}));
  CHECK(folder.entries() == 1);
}

TEST_CASE("faulty disk: a folder that vanishes before any call is a typed error, and what was in it stays") {
  const TemporaryFolder folder;
  const auto runs = folder / "runs", gone = folder / "gone";
  write_quickly(runs, small_contents(1));
  int number_failed = 0;
  for (int at = 0; at < 40; ++at) {
    CAPTURE(at);
    {
      const FaultyDisk disk({.kind = DiskFault::act, .at = at, .action = [&] { fs::rename(runs, gone); }});
      try {
        write_snapshot(runs, small_contents(2));
      } catch (const SnapshotError& error) {
        CHECK_THAT(error.what(), Contains(runs.string()) && Contains("No such file or directory"));
        ++number_failed;
      }
    }
    CHECK(fs::exists(gone));
    CHECK_NOTHROW(looptorch::verify_snapshot(gone / "step-00000001"));
    for (const auto& path : {runs, gone}) {
      looptorch::sweep_unfinished(path);
      looptorch::prune_snapshots(path, 0, {1});
    }
    fs::remove(runs);
    fs::rename(gone, runs);
  }
  CHECK(number_failed > 30);
  CHECK(is_newest(runs, {small_contents(1)}));
}

TEST_CASE("faulty disk: without permission there is a typed error, and nothing is touched") {
  const TemporaryFolder folder;
  write_quickly(folder.path(), small_contents(1));
  ::chmod(folder.path().c_str(), 0555);
  const auto write = [&] {
    // root may write anywhere
    if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setegid(65534) != 0 || ::seteuid(65534) != 0))
      ::_exit(3);
    try {
      write_snapshot(folder.path(), small_contents(2));
    } catch (const SnapshotError& error) {
      const std::string what = error.what();
      ::_exit(what == (folder / "step-00000002").string() + ": cannot create: Permission denied" ? 0 : 4);
    }
  };
  CHECK(run_in_child(write) == 0);
  ::chmod(folder.path().c_str(), 0755);
  CHECK(is_newest(folder.path(), {small_contents(1)}));
  CHECK(folder.entries() == 1);
}

TEST_CASE("faulty disk: files that may not grow") {
  const TemporaryFolder folder;
  write_quickly(folder.path(), small_contents(1));
  const auto write = [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    write_snapshot(folder.path(), small_contents(2));
  };
  CHECK(run_in_child(write) == 1);
  CHECK(is_newest(folder.path(), {small_contents(1)}));
  CHECK(folder.entries() == 1);
}

TEST_CASE("faulty disk: a real one that is too small") {
  const TemporaryFolder folder;
  auto large = small_contents(2);
  large.model["large"] = torch::ones({1 << 20});
  const auto write = [&] {
    const bool is_mounted = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            ::mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") == 0;
    if (!is_mounted) ::_exit(77);
    write_snapshot(folder.path(), small_contents(1));
    bool was_told = false, was_full = false;
    try {
      write_snapshot(folder.path(), large);
    } catch (const looptorch::SnapshotSpaceError& error) {
      was_told = error.needed_bytes > 4'000'000 && error.free_bytes < 1 << 20;
    }
    try {
      const FaultyDisk disk({.promises_space = true});
      write_snapshot(folder.path(), large);
    } catch (const SnapshotError& error) {
      was_full = std::string(error.what()) == (folder / "step-00000002").string() +
                                                  "/model.safetensors: cannot write: No space left on device";
    }
    const bool is_intact = is_newest(folder.path(), {small_contents(1)}) && folder.entries() == 1;
    write_snapshot(folder.path(), small_contents(3));
    ::_exit(was_told && was_full && is_intact ? 0 : 5);
  };
  const int status = run_in_child(write);
  if (status == 77) {
    WARN("skipped: no tmpfs can be mounted here");
  } else {
    CHECK(status == 0);
  }
}

TEST_CASE("faulty disk: the writer in the background reports it once, and writes again when there is room") {
  const TemporaryFolder folder;
  SnapshotWriter writer(folder.path());
  {
    const FaultyDisk disk;
    writer.begin(small_contents(1));
    writer.wait();
  }
  {
    const FaultyDisk disk({.full_after = 100});
    writer.begin(small_contents(2));
    CHECK_THROWS_WITH(writer.wait(), Contains("step-00000002/") && Contains("No space left on device"));
    CHECK(writer.poll() == std::nullopt);
  }
  CHECK(is_newest(folder.path(), {small_contents(1)}));
  writer.begin(small_contents(3));
  CHECK(writer.wait() == folder / "step-00000003");
  CHECK(is_newest(folder.path(), {small_contents(3)}));
}

TEST_CASE("faulty disk: a snapshot that is published between any two calls of a sweep stays") {
  const bool replaces = GENERATE(false, true);
  for (int at = 0; at < 14; ++at) {
    CAPTURE(replaces, at);
    const TemporaryFolder folder;
    if (replaces) write_quickly(folder.path(), small_contents(1));
    auto image = looptorch::detail::make_image(folder.path(), small_contents(1, 3));
    auto writing = std::make_unique<looptorch::detail::PartialFolder>(image.path());
    for (std::size_t i = 0; i < image.files().size(); ++i) {
      auto file = writing->create(image.files()[i].listed.name);
      image.write(i, file);
    }
    const auto publish = [&] {
      writing->publish(image.manifest(), looptorch::detail::is_sound);
      writing.reset();
    };
    {
      const FaultyDisk disk({.kind = DiskFault::act, .at = at, .action = publish});
      sweep_unfinished(folder.path());
    }
    if (writing) publish();
    CHECK(is_newest(folder.path(), {small_contents(1, 3)}));
    sweep_unfinished(folder.path());
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("faulty disk: writers and sweeps at the same time harm no snapshot") {
  const TemporaryFolder folder;
  const FaultyDisk without_waiting;
  constexpr std::int64_t kSteps = 150;
  std::atomic<int> writing = 2;
  const auto write = [&](std::int64_t first) {
    for (std::int64_t step = first; step <= kSteps; step += 2) {
      write_snapshot(folder.path(), small_contents(step));
      write_snapshot(folder.path(), small_contents(step, 5));  // replaces it
    }
    --writing;
  };
  std::thread odd(write, 1), even(write, 2), sweeper([&] {
    while (writing > 0) sweep_unfinished(folder.path());
  });
  odd.join(), even.join(), sweeper.join();
  CHECK(looptorch::list_snapshots(folder.path()).size() == kSteps);
  CHECK(folder.entries() == kSteps);
  for (const auto& [step, path] : looptorch::list_snapshots(folder.path())) {
    CAPTURE(step);
    CHECK(bits_equal(read_snapshot(path), small_contents(step, 5)));
  }
}

TEST_CASE("faulty disk: a file system that counts no links takes snapshots") {
  const TemporaryFolder folder;
  DiskFault fault;
  fault.no_links = true;
  const FaultyDisk disk(fault);
  write_snapshot(folder.path(), small_contents(1));
  CHECK(is_newest(folder.path(), {small_contents(1)}));
  CHECK(folder.entries() == 1);
}
