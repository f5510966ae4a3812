// SPDX-License-Identifier: MIT
// Tests state/snapshot: choose_snapshot, newest_snapshot, snapshot_names, snapshot_remove
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/choose_snapshot.hpp>
#include <looptorch/state/snapshot/partial_folder.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::choose_snapshot;
using looptorch::find_newest_snapshot;
using looptorch::find_snapshot;
using looptorch::list_snapshots;
using looptorch::prune_snapshots;
using looptorch::remove_snapshot;
using looptorch::SnapshotError;
using looptorch::sweep_unfinished;
using looptorch::UsageError;
using looptorch::write_file_atomically;
using looptorch::write_snapshot;
using looptorch::testing::small_contents;
using looptorch::testing::TemporaryFolder;

namespace {

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& snapshot : list_snapshots(folder)) steps.push_back(snapshot.step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

void write_steps(const fs::path& folder, const Steps& steps) {
  for (const auto step : steps) write_snapshot(folder, small_contents(step));
}

/// A folder that a killed writer left with these files.
fs::path leave_over(const fs::path& folder, const std::string& name, const std::vector<std::string>& files) {
  fs::create_directory(folder / name);
  for (const auto& file : files) write_file_atomically(folder / name / file, "half");
  return folder / name;
}

}  // namespace

TEST_CASE("snapshot folder: snapshots are listed by step, and nothing else is") {
  const TemporaryFolder folder;
  CHECK(list_snapshots(folder / "none").empty());
  write_steps(folder.path(), {120, 3, 100'000'000});
  for (const char* name : {"step-120", "step-0000000x", "step-00000005.partial-1-1", "step--0000001", "steps",
                           "step-00000120 (copy)", "step-+0000001", "step-000000120"}) {
    fs::create_directory(folder / name);
  }
  CHECK(steps_in(folder.path()) == Steps{3, 120, 100'000'000});
  CHECK(list_snapshots(folder.path())[1].path == folder / "step-00000120");
  write_file_atomically(folder / "file", "");
  CHECK_THROWS_WITH(list_snapshots(folder / "file"),
                    Contains("file: cannot read the folder: Not a directory"));
  CHECK_THROWS_AS(list_snapshots(folder / "file"), SnapshotError);
}

TEST_CASE(
    "snapshot folder: the newest intact snapshot is found, and those rejected are named with a reason") {
  const TemporaryFolder folder;
  CHECK(find_newest_snapshot(folder / "none").path.empty());
  CHECK(find_newest_snapshot(folder.path()).path.empty());
  write_steps(folder.path(), {1, 2, 3, 10});
  CHECK(find_newest_snapshot(folder.path()).path == folder / "step-00000010");
  CHECK(find_newest_snapshot(folder.path()).rejected.empty());

  fs::remove(folder / "step-00000010/manifest.json");
  fs::resize_file(folder / "step-00000003/model.safetensors", 20);
  write_file_atomically(folder / "step-00000011", "a file");
  const auto newest = find_newest_snapshot(folder.path());
  CHECK(newest.path == folder / "step-00000002");
  REQUIRE(newest.rejected.size() == 3);
  CHECK(newest.rejected[0].path == folder / "step-00000011");
  CHECK_THAT(newest.rejected[0].reason,
             Contains("step-00000011/manifest.json: cannot open: Not a directory"));
  CHECK(newest.rejected[1].path == folder / "step-00000010");
  CHECK_THAT(newest.rejected[1].reason, Contains("step-00000010/manifest.json: cannot open: No such file"));
  CHECK(newest.rejected[2].path == folder / "step-00000003");
  CHECK_THAT(newest.rejected[2].reason, Contains("model.safetensors: has 20 bytes, the manifest says "));
}

TEST_CASE("snapshot folder: what is found is held until it is taken, once for all copies") {
  const TemporaryFolder folder;
  write_steps(folder.path(), {1, 2});
  const auto newest = find_newest_snapshot(folder.path()), copy = newest;
  fs::remove(folder / "step-00000002/manifest.json");
  CHECK(copy.take().step == 2);
  CHECK_THROWS_AS(newest.take(), SnapshotError);  // from the disk
  const auto before = find_snapshot(folder / "step-00000001/");
  CHECK(before.path == folder / "step-00000001");
  before.release();
  CHECK_FALSE(before.held->has_value());
  CHECK(before.take().step == 1);
}

TEST_CASE("snapshot folder: a run continues from the snapshot that is meant, or says why it cannot") {
  const TemporaryFolder folder;
  const auto own = folder / "own", other = folder / "other", fresh = folder / "fresh";
  const auto refused = [&](const std::string& resume, const std::string& why) {
    CHECK_THROWS_WITH(choose_snapshot(resume, own), Contains(why));
  };
  CHECK(choose_snapshot("", own).path.empty());
  CHECK(choose_snapshot("auto", own).path.empty());
  CHECK(choose_snapshot("auto", own).describe() == "no snapshot to resume from: starts a new run\n");
  CHECK_THROWS_AS(choose_snapshot(own.string(), own), SnapshotError);
  refused(own.string(), "own: holds no snapshot to resume from");
  refused("checkpoint_epoch_15.pt", "checkpoint_epoch_15.pt: is no snapshot, which is a folder");
  write_file_atomically(folder / "a file", "");
  refused((folder / "a file").string(), "a file: is no snapshot, which is a folder");

  write_steps(own, {4, 8});
  write_steps(other, {3});
  CHECK_THROWS_AS(choose_snapshot("", own), UsageError);
  refused("", own.string() + " holds a run: go on with --resume auto, or choose another folder");
  const auto newest = own / "step-00000008", before = own / "step-00000004";
  CHECK(choose_snapshot("auto", own).path == newest);
  CHECK(choose_snapshot("auto", own).describe().empty());
  CHECK(choose_snapshot(before.string(), own).path == before);
  CHECK_THROWS_AS(choose_snapshot((own / "step-00000009").string(), own), SnapshotError);
  refused((own / "step-00000009").string(), "step-00000009");
  CHECK(choose_snapshot(other.string(), fresh).path == other / "step-00000003");
  CHECK_THROWS_AS(choose_snapshot(other.string(), own), UsageError);
  refused(other.string(), own.string() + " holds another run than ");
  fs::copy(other / "step-00000003", folder / "best", fs::copy_options::recursive);
  CHECK(choose_snapshot((folder / "best").string(), fresh).path == folder / "best");

  fs::remove(newest / "state.json");
  CHECK_THROWS_AS(choose_snapshot(newest.string(), own), SnapshotError);
  CHECK(choose_snapshot("auto", own).path == before);
  CHECK_THAT(choose_snapshot("auto", own).describe(), Contains("rejected " + newest.string()));
  fs::remove(other / "step-00000003/state.json");
  refused(other.string(), "other: holds no snapshot to resume from; ");
  refused(other.string(), "step-00000003");
}

TEST_CASE("snapshot folder: what a dead process left is swept, whatever state it was in") {
  const TemporaryFolder folder;
  write_steps(folder.path(), {1});
  std::vector<fs::path> left{
      leave_over(folder.path(), "step-00000002.partial-1-0", {}),
      leave_over(folder.path(), "step-00000002.partial-1-1", {"manifest.json"}),
      leave_over(folder.path(), "step-00000003.partial-999999-7", {"manifest.json", "model.safetensors"}),
      leave_over(folder.path(), "step-00000001.deleted-1-1",
                 {"manifest.json", "state.json", "state.safetensors"}),
  };
  std::sort(left.begin(), left.end());
  auto swept = sweep_unfinished(folder.path());
  std::sort(swept.begin(), swept.end());
  CHECK(swept == left);
  CHECK(folder.entries() == 1);
  CHECK(sweep_unfinished(folder / "none").empty());
}

TEST_CASE("snapshot folder: a sweep leaves other people's files, links and names alone") {
  const TemporaryFolder folder, elsewhere;
  leave_over(folder.path(), "step-00000002.partial-1-0", {"manifest.json", "model.safetensors", "notes.txt"});
  leave_over(folder.path(), "step-00000002.partial-1-1", {"model.safetensors"});
  leave_over(folder.path(), "step-00000002.partial-1-2", {"manifest.json"});
  fs::create_directory(folder / "step-00000002.partial-1-2/model.safetensors");
  for (const char* name : {"step-00000002.partial", "step-00000002.partial-x", "step-2.partial-1-1",
                           "x.partial-1-1", "step-00000002.old-1-1"}) {
    leave_over(folder.path(), name, {"manifest.json"});
  }
  leave_over(elsewhere.path(), "precious", {"manifest.json", "model.safetensors"});
  fs::create_directory_symlink(elsewhere / "precious", folder / "step-00000003.partial-1-1");
  leave_over(folder.path(), "step-00000004.partial-1-1", {});
  fs::create_symlink(elsewhere / "precious/manifest.json",
                     folder / "step-00000004.partial-1-1/manifest.json");
  const auto before = folder.entries();
  CHECK(sweep_unfinished(folder.path()).empty());
  CHECK(folder.entries() == before);
  CHECK(fs::exists(folder / "step-00000002.partial-1-0/model.safetensors"));
  CHECK(fs::exists(elsewhere / "precious/manifest.json"));
  CHECK(fs::exists(elsewhere / "precious/model.safetensors"));
}

TEST_CASE("snapshot folder: what a living writer has begun is left alone, and swept once it is dead") {
  const TemporaryFolder folder;
  {
    const looptorch::detail::PartialFolder writing(folder / "step-00000001");
    CHECK(folder.entries() == 1);
    CHECK(sweep_unfinished(folder.path()).empty());
    CHECK(folder.entries() == 1);
  }
  CHECK(folder.entries() == 0);

  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const looptorch::detail::PartialFolder writing(folder / "step-00000001");
    const bool told = ::write(ready[1], "x", 1) == 1;
    while (told) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(sweep_unfinished(folder.path()).empty());
  CHECK(folder.entries() == 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(sweep_unfinished(folder.path()).size() == 1);
  CHECK(folder.entries() == 0);
  ::close(ready[0]), ::close(ready[1]);
}

TEST_CASE("snapshot folder: pruning keeps the newest and those spared") {
  const TemporaryFolder folder;
  write_steps(folder.path(), {1, 2, 3, 4, 5});
  write_file_atomically(folder / "log.txt", "mine");
  CHECK(prune_snapshots(folder.path(), 5).empty());
  CHECK(prune_snapshots(folder.path(), 2, {1, 7}) ==
        std::vector<fs::path>{folder / "step-00000003", folder / "step-00000002"});
  CHECK(steps_in(folder.path()) == Steps{1, 4, 5});
  CHECK(prune_snapshots(folder.path(), 1, {5}) ==
        std::vector<fs::path>{folder / "step-00000004", folder / "step-00000001"});
  CHECK(prune_snapshots(folder.path(), 0).size() == 1);
  CHECK(folder.entries() == 1);
  CHECK(prune_snapshots(folder / "none", 1).empty());
}

TEST_CASE("snapshot folder: pruning opens no spared snapshot that is older than those to keep") {
  const TemporaryFolder folder;
  for (const std::int64_t step : {1, 2, 3, 4}) write_snapshot(folder.path(), small_contents(step));
  const looptorch::detail::FileDescriptor watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  REQUIRE(::inotify_add_watch(watch.get(), (folder / "step-00000001").c_str(), IN_OPEN) >= 0);
  const auto was_opened = [&] {
    alignas(inotify_event) char events[4096];
    return ::read(watch.get(), events, sizeof events) > 0;
  };
  CHECK(prune_snapshots(folder.path(), 1, {1, 2}) == std::vector<fs::path>{folder / "step-00000003"});
  CHECK_FALSE(was_opened());
  CHECK(prune_snapshots(folder.path(), 2, {1}) == std::vector<fs::path>{});
  CHECK_FALSE(was_opened());
  CHECK(prune_snapshots(folder.path(), 3, {1}) == std::vector<fs::path>{});  // counted: 4, 2, 1
  CHECK(was_opened());
}

TEST_CASE("snapshot folder: those of later steps than the run's neither count nor are pruned") {
  const TemporaryFolder folder;
  write_steps(folder.path(), {1, 2, 3, 9});
  CHECK(prune_snapshots(folder.path(), 1, {1}, 3) == std::vector<fs::path>{folder / "step-00000002"});
  CHECK(steps_in(folder.path()) == Steps{1, 3, 9});
}

TEST_CASE("snapshot folder: a snapshot that is not whole neither counts nor is pruned") {
  const TemporaryFolder folder;
  write_steps(folder.path(), {1, 2, 3, 4, 5, 6});
  fs::remove(folder / "step-00000006/state.json");
  fs::resize_file(folder / "step-00000005/model.safetensors", 9);
  write_file_atomically(folder / "step-00000001/notes.txt", "mine");
  CHECK(prune_snapshots(folder.path(), 1) ==
        std::vector<fs::path>{folder / "step-00000003", folder / "step-00000002"});
  CHECK(steps_in(folder.path()) == Steps{1, 4, 5, 6});
  CHECK(looptorch::read_file(folder / "step-00000001/notes.txt") == "mine");
}

TEST_CASE("snapshot folder: only a snapshot's own files are deleted, and through no link") {
  const TemporaryFolder folder, elsewhere;
  write_steps(folder.path(), {1, 2});
  write_steps(elsewhere.path(), {3});
  write_file_atomically(folder / "step-00000001/notes.txt", "mine");
  CHECK_THROWS_WITH(remove_snapshot(folder / "step-00000001"),
                    Contains("step-00000001/notes.txt: is no file of a snapshot, so its folder stays"));
  CHECK(steps_in(folder.path()) == Steps{1, 2});

  fs::create_directory_symlink(elsewhere / "step-00000003", folder / "step-00000003");
  CHECK_THROWS_WITH(remove_snapshot(folder / "step-00000003"),
                    Contains("step-00000003: cannot read the folder"));
  CHECK_THROWS_AS(remove_snapshot(folder / "step-00000003"), SnapshotError);
  CHECK(steps_in(elsewhere.path()) == Steps{3});

  fs::remove(folder / "step-00000002/state.json");
  fs::create_symlink(elsewhere / "step-00000003/state.json", folder / "step-00000002/state.json");
  CHECK_THROWS_WITH(remove_snapshot(folder / "step-00000002"),
                    Contains("state.json: is no file of a snapshot"));
  CHECK_NOTHROW(looptorch::verify_snapshot(elsewhere / "step-00000003"));
  CHECK_THROWS_WITH(remove_snapshot(folder / "step-00000009"),
                    Contains("step-00000009: cannot read the folder: No such"));

  remove_snapshot(elsewhere / "step-00000003");
  CHECK(elsewhere.entries() == 0);
}

TEST_CASE("snapshot names: those of parts are exactly what they are written as") {
  using looptorch::detail::is_shard_file;
  for (const std::int64_t rank : {0, 1, 99'999, 100'000})
    CHECK(is_shard_file(looptorch::detail::shard_file_name(rank)));
  for (const char* other :
       {"optimizer.rank-1.safetensors", "optimizer.rank--0001.safetensors",
        "optimizer.rank-00001.safetensors.bak", "optimizer.rank-00001", "optimizer.rank-"})
    CHECK_FALSE(is_shard_file(other));
}

TEST_CASE("snapshot folder: one that cannot be looked at is refused with a SnapshotError") {
  const TemporaryFolder folder;
  fs::create_symlink(folder / "loop", folder / "loop");
  for (const auto& path : {folder / "loop", folder / std::string(300, 'a')})
    CHECK_THROWS_AS(find_snapshot(path), SnapshotError);
}

TEST_CASE("A snapshot lies in its folder by any of the folder's names") {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "run" / "step-00000001");
  fs::create_directories(folder.path() / "other");
  fs::create_directory_symlink(folder.path() / "run", folder.path() / "link");
  using looptorch::snapshot_lies_in;
  CHECK(snapshot_lies_in(folder.path() / "run" / "step-00000001", folder.path() / "run"));
  CHECK(snapshot_lies_in(folder.path() / "run" / "step-00000001/", folder.path() / "link"));
  CHECK_FALSE(snapshot_lies_in(folder.path() / "run" / "step-00000001", folder.path() / "other"));
  CHECK_FALSE(snapshot_lies_in({}, folder.path() / "run"));
  CHECK_FALSE(snapshot_lies_in({}, ".."));
}
