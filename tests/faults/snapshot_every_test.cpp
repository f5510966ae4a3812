// SPDX-License-Identifier: MIT
// SnapshotEvery where what fails is no disk that says why: no memory, no thread, an exception of the standard
// library in the midst of a write; and old snapshots that cannot be removed.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "disk_shim.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <cerrno>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::DiskFault;
using looptorch::testing::FaultyDisk;
using looptorch::testing::TemporaryFolder;
using looptorch::testing::Warnings;

namespace {

using Hook = std::function<void(lt::WindowContext&)>;

/// 8 steps with a snapshot every 2, and a disk that is faulty from the end of step `from` to that of step
/// `to`.
struct Toy {
  Toy(lt::SnapshotEvery how, DiskFault fault, std::int64_t from = 1, std::int64_t to = 100)
      : trainer(net, optimizer, toy::objective, with_steps(std::move(how)),
                lt::On{lt::kClip, Hook([=, this](lt::WindowContext& window) {
                         const std::int64_t step = window.run.progress().step;
                         if (step == from) disk.emplace(fault);
                         if (step == to) disk.reset();
                       })}) {
    at::set_num_threads(1);
  }

  static lt::SnapshotEvery with_steps(lt::SnapshotEvery how) {
    how.steps = 2;
    how.on_signals = false;
    return how;
  }
  lt::FitResult fit() { return trainer.fit(batches, {.max_steps = 8}); }
  [[nodiscard]] const lt::SnapshotEvery::State& state() { return trainer.policy<lt::SnapshotEvery>(); }

  std::optional<FaultyDisk> disk;
  std::vector<toy::Batch> batches = toy::batches(4);
  toy::Net net = toy::net();
  lt::FusedSGD optimizer{net->parameters(), {.lr = 0.1}};
  lt::Trainer<toy::Net, lt::Update<lt::FusedSGD, lt::Loss (*)(toy::Net&, const toy::Batch&)>,
              lt::SnapshotEvery, lt::On<lt::Phase::clip, Hook>>
      trainer;
};

using Steps = std::vector<std::int64_t>;

/// Of the snapshots in a folder that has nothing else, all intact.
Steps steps_in(const TemporaryFolder& folder) {
  Steps steps;
  for (const auto& snapshot : lt::list_snapshots(folder.path())) {
    lt::verify_snapshot(snapshot.path);
    steps.push_back(snapshot.step);
  }
  CHECK(folder.entries() == static_cast<std::ptrdiff_t>(steps.size()));
  return steps;
}

/// The run that stops has step 2's snapshot and an error of the writing of step 4's, which says `why`; the
/// one that goes on has all but step 4's, and a warning that says so. The disk is faulty from step 3 to step
/// `to`.
void check_stops_and_warns(const std::function<DiskFault(const fs::path&)>& fault, const std::string& why,
                           std::int64_t to = 100) {
  TemporaryFolder stops, warns;
  Toy stopping({.folder = stops.path()}, fault(stops.path()), 3, to);
  try {
    stopping.fit();
    FAIL("it was not stopped");
  } catch (const lt::SnapshotError& error) {
    CHECK_THAT(error.what(), Contains(stops.path().string()) && Contains(why));
  }
  stopping.disk.reset();
  CHECK(steps_in(stops) == Steps{2});

  Warnings warnings;
  Toy going({.folder = warns.path(), .keep = 0, .on_error = lt::OnSnapshotError::warn}, fault(warns.path()),
            3, to);
  CHECK(going.fit().steps == 8);
  CHECK(steps_in(warns) == Steps{2, 6, 8});
  CHECK(going.state().failures == 1);
  CHECK_THAT(going.state().last_error, Contains(warns.path().string()) && Contains(why));
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Contains("training goes on without a snapshot: " + warns.path().string()));
}

DiskFault throwing(const std::string& of, std::function<void()> thrower) {
  DiskFault fault;
  fault.kind = DiskFault::act, fault.at = 0, fault.of = of, fault.action = std::move(thrower);
  return fault;
}

}  // namespace

TEST_CASE("SnapshotEvery: whatever is thrown in the midst of a write is typed, or told and gone on from") {
  const auto no_memory = [] { throw std::bad_alloc(); };
  const auto too_many = [] { throw std::system_error(EMFILE, std::generic_category()); };
  for (const char* call : {"create ", "write ", "fsync "}) {
    INFO(call);
    const auto partial = [&](const fs::path& folder) {
      return call + (folder / "step-00000004.partial-").string();
    };
    check_stops_and_warns([&](const fs::path& folder) { return throwing(partial(folder), no_memory); },
                          "step-00000004: cannot write a snapshot: std::bad_alloc");
    check_stops_and_warns([&](const fs::path& folder) { return throwing(partial(folder), too_many); },
                          "step-00000004: cannot write a snapshot: Too many open files");
  }
}

TEST_CASE("SnapshotEvery: where no thread can begin, the error is typed, or told and gone on from") {
  DiskFault fault;
  fault.no_threads = true;
  check_stops_and_warns([&](const fs::path&) { return fault; },
                        "cannot write a snapshot: Resource temporarily", 5);
}

TEST_CASE("SnapshotEvery: an old snapshot that cannot be removed is reported, stays, and is removed later") {
  TemporaryFolder folder;
  Warnings warnings;
  DiskFault fault;
  fault.at = 0, fault.error = EACCES, fault.of = ".deleted-";
  Toy run({.folder = folder.path(), .keep = 1}, fault);
  CHECK(run.fit().status == lt::FitStatus::max_steps);
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Contains("an old snapshot stays: " + (folder / "step-00000002").string() +
                                         ": cannot remove: Permission denied"));
  CHECK(run.state().failures == 0);
  CHECK(steps_in(folder) == Steps{8});
}
