// SPDX-License-Identifier: MIT
// A training process that is killed: by SIGKILL at random moments, at the system calls of its snapshots, or
// by SIGTERM. The next process resumes from the newest intact snapshot, and the last one ends with the bits
// of a run that was left alone: weights, moments, random numbers, and the losses of every step on the way.
//
// LOOPTORCH_KILLS says how many random moments; with LOOPTORCH_EVERY_CALL all calls are tried, else some.
#include "support/precompiled.hpp"

#include "disk_shim.hpp"
#include "support/temporary_folder.hpp"
#include "support/whole_run.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace fs = std::filesystem;
namespace lt = looptorch;
using looptorch::testing::DiskFault;
using looptorch::testing::FaultyDisk;
using looptorch::testing::TemporaryFolder;
using Seconds = std::chrono::duration<double>;

namespace {

constexpr int kCompleted = 0, kError = 3, kInterrupted = 7;

/// Appends the line in one call of the C library's own, so that neither a kill nor the faulty disk gets in
/// between.
void append(const fs::path& file, const std::string& line) {
  std::FILE* open = std::fopen(file.c_str(), "a");
  std::fputs((line + "\n").c_str(), open);
  if (std::fclose(open) != 0) std::_Exit(kError);
}

/// Trains in `folder` from what is there, and leaves the end in `folder/end`.
int train(const fs::path& folder) {
  whole_run::Options options;
  options.snapshots = {.folder = folder / "snapshots", .steps = 2, .keep = 2, .best = "held_out.loss"};
  options.resume = lt::find_newest_snapshot(options.snapshots.folder).path;
  options.on_step = [&](lt::Run& run) { append(folder / "losses", whole_run::line_of(run)); };
  const auto ending = whole_run::run(options);
  if (ending.result.status == lt::FitStatus::interrupted) return kInterrupted;
  lt::write_snapshot(folder / "end", ending.contents);
  return kCompleted;
}

/// A process that trains, with a disk on which fsync takes no time.
class Child {
 public:
  explicit Child(const fs::path& folder, DiskFault fault = {}, const fs::path& calls = {})
      : process_(::fork()) {
    if (process_ > 0) return;
    for (const int signal : {SIGTERM, SIGINT}) ::signal(signal, SIG_DFL);  // not Catch2's
    int code = kError;
    try {
      FaultyDisk disk(std::move(fault));
      code = train(folder);
      if (!calls.empty()) std::ofstream(calls) << disk.calls().size();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the process that trains: %s\n", error.what());
    }
    std::_Exit(code);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (status_) return;
    ::kill(process_, SIGKILL);
    (void)wait();
  }

  void send(int signal) const { ::kill(process_, signal); }
  /// How it ended: an exit code, or the negative of a signal.
  int wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return *status_;
  }

 private:
  pid_t process_;
  std::optional<int> status_;
};

std::multimap<std::string, std::string> losses(const fs::path& folder) {
  std::ifstream file(folder / "losses");
  std::multimap<std::string, std::string> lines;
  for (std::string line; std::getline(file, line);) lines.emplace(line.substr(0, line.find(' ')), line);
  return lines;
}

lt::SnapshotContents end_of(const fs::path& folder) {
  return lt::read_snapshot(lt::find_newest_snapshot(folder / "end").path);
}

/// A run that was left alone.
struct Uncut {
  Uncut() {
    const auto begin = std::chrono::steady_clock::now();
    Child child(folder.path(), {}, folder / "calls");
    if (child.wait() != kCompleted) throw std::runtime_error("the run that is left alone failed");
    duration = std::chrono::steady_clock::now() - begin;
    std::ifstream(folder / "calls") >> calls;
    end = end_of(folder.path());
    for (const auto& [step, line] : losses(folder.path())) lines.emplace(step, line);
  }

  TemporaryFolder folder;
  Seconds duration{};
  int calls = 0;
  lt::SnapshotContents end;
  std::map<std::string, std::string> lines;
};

const Uncut& uncut() {
  static const Uncut run;
  return run;
}

/// The run in the folder is over, and it is the run that was left alone, a step done twice included.
void check_end(const fs::path& folder) {
  CHECK(whole_run::difference(uncut().end, end_of(folder)) == "");
  const auto lines = losses(folder);
  std::size_t steps = 0;
  for (auto line = lines.begin(); line != lines.end(); line = lines.upper_bound(line->first)) ++steps;
  CHECK(steps == whole_run::kSteps);
  for (const auto& [step, line] : lines) CHECK(line == uncut().lines.at(step));
}

void go_on_to_the_end(const fs::path& folder) {
  REQUIRE(Child(folder).wait() == kCompleted);
  check_end(folder);
}

/// The moments of one test, the same in every run of it, spread over the whole life of a process.
class Moments {
 public:
  void wait_for_next() { std::this_thread::sleep_for(uncut().duration * share_(random_)); }

 private:
  std::mt19937_64 random_{20261121};
  std::uniform_real_distribution<double> share_{0.0, 1.05};
};

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

TEST_CASE("the run that is left alone writes snapshots, skips a step, and logs all of them") {
  CHECK(uncut().calls > 100);
  CHECK(uncut().lines.size() == whole_run::kSteps);
  CHECK(uncut().end.state.get<std::int64_t>("run.progress.skipped") > 0);
  CHECK(lt::list_snapshots(uncut().folder / "snapshots").size() >= 2);
}

TEST_CASE("killed at random moments, up to twice in a row") {
  const int kills = number_of("LOOPTORCH_KILLS", 60);
  Moments moments;
  int killed = 0;
  while (killed < kills) {
    TemporaryFolder folder;
    INFO("kill " << killed);
    for (int i = 0; i < 2; ++i) {
      Child child(folder.path());
      moments.wait_for_next();
      child.send(SIGKILL);
      ++killed;
      const int how = child.wait();
      REQUIRE((how == -SIGKILL || how == kCompleted));
    }
    go_on_to_the_end(folder.path());
  }
}

TEST_CASE("killed at the system calls of its snapshots") {
  const int every = std::getenv("LOOPTORCH_EVERY_CALL") ? 1 : std::max(1, uncut().calls / 25);
  for (int call = 0; call < uncut().calls; call += every) {
    TemporaryFolder folder;
    INFO("killed at call " << call << " of " << uncut().calls);
    Child child(folder.path(), {.kind = DiskFault::kill, .at = call});
    const int how = child.wait();
    REQUIRE((how == -SIGKILL || how == kCompleted));  // which calls there are is not the same in each run
    go_on_to_the_end(folder.path());
  }
}

TEST_CASE("asked to end by SIGTERM or SIGINT, it ends after the window, with a snapshot") {
  Moments moments;
  int interrupted = 0;
  for (int i = 0; i < number_of("LOOPTORCH_KILLS", 60) / 4; ++i) {
    TemporaryFolder folder;
    INFO("signal " << i);
    Child child(folder.path());
    moments.wait_for_next();
    child.send(i % 2 == 0 ? SIGTERM : SIGINT);
    const int how = child.wait();
    if (how == kInterrupted) {
      ++interrupted;
      const auto newest = lt::find_newest_snapshot(folder / "snapshots");
      CHECK(newest.rejected.empty());
      CHECK(lt::read_snapshot(newest.path).step == static_cast<std::int64_t>(losses(folder.path()).size()));
    } else {
      REQUIRE((how == -SIGTERM || how == -SIGINT || how == kCompleted));  // before or after the fit
    }
    go_on_to_the_end(folder.path());
  }
  CHECK(interrupted > 0);
}
