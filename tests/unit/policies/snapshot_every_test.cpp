// SPDX-License-Identifier: MIT
// Tests base/files: folder_lock
// Tests base/process: signals
// Tests state/snapshot: snapshot_work
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using looptorch::testing::Warnings;

namespace {

using Hook = std::function<void(lt::WindowContext&)>;

/// A run of 3 epochs of 4 batches; `hook` runs in each window before the snapshot.
struct Toy {
  explicit Toy(
      lt::SnapshotEvery snapshots, Hook hook = [](lt::WindowContext&) {})
      : trainer(net, optimizer, toy::objective, std::move(snapshots), lt::On{lt::kClip, std::move(hook)}) {}

  lt::FitResult fit(lt::FitOptions options = {.epochs = 3}) { return trainer.fit(batches, options); }

  std::vector<toy::Batch> batches = toy::batches(4);
  toy::Net net = toy::net();
  lt::FusedSGD optimizer{net->parameters(), {.lr = 0.1}};
  lt::Trainer<toy::Net, lt::Update<lt::FusedSGD, lt::Loss (*)(toy::Net&, const toy::Batch&)>,
              lt::SnapshotEvery, lt::On<lt::Phase::clip, Hook>>
      trainer;
};

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& snapshot : lt::list_snapshots(folder)) {
    lt::verify_snapshot(snapshot.path);
    steps.push_back(snapshot.step);
  }
  return steps;
}

using Steps = std::vector<std::int64_t>;

/// The handler that the process has for a signal.
void (*handler_of(int signal))(int) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

void await(const fs::path& path) {
  while (!fs::exists(path)) std::this_thread::yield();
}

/// Waits until no snapshot is being written: one that has its name may still be synced to the disk.
void await_writer(Toy& run) { run.trainer.policy<lt::SnapshotEvery>().work->wait(); }

}  // namespace

TEST_CASE("SnapshotEvery: by steps, by epochs, by time, by both, and at the fit's end") {
  const auto written = [](lt::SnapshotEvery how) {
    TemporaryFolder folder;
    how.folder = folder / "made" / "here";
    how.keep = 0;
    Toy(how).fit();
    return steps_in(how.folder);
  };
  CHECK(written({}) == Steps{12});
  CHECK(written({.steps = 5}) == Steps{5, 10, 12});
  CHECK(written({.epochs = 1}) == Steps{4, 8, 12});
  CHECK(written({.epochs = 2}) == Steps{8, 12});
  CHECK(written({.steps = 3, .epochs = 2}) == Steps{3, 6, 8, 9, 12});
  CHECK(written({.minutes = 1e-9}) == Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(written({.minutes = 60}) == Steps{12});
}

TEST_CASE("SnapshotEvery: the newest stay, and the best") {
  TemporaryFolder folder;
  Toy({.folder = folder.path(), .steps = 2, .keep = 2}).fit();
  CHECK(steps_in(folder.path()) == Steps{10, 12});

  TemporaryFolder lowest, highest;
  const std::vector<double> score{5, 3, 4, 2, 6, 7, NAN, 8, 9, 3, 4, 5};
  const Hook publish = [&](lt::WindowContext& window) {
    window.run.metrics().publish("score", score[static_cast<std::size_t>(window.run.progress().step - 1)]);
  };
  Toy low({.folder = lowest.path(), .steps = 5, .keep = 1, .best = "score"}, publish);
  low.fit();
  CHECK(steps_in(lowest.path()) == Steps{4, 12});
  CHECK(low.trainer.policy<lt::SnapshotEvery>().best.step() == 4);
  CHECK(low.trainer.policy<lt::SnapshotEvery>().at_step == 12);
  Toy high({.folder = highest.path(), .keep = 1, .best = "score", .better = lt::Better::higher}, publish);
  high.fit();
  CHECK(steps_in(highest.path()) == Steps{9, 12});

  Toy on({.folder = lowest.path(), .keep = 1, .best = "score"}, [](lt::WindowContext& window) {
    window.run.metrics().publish("score", 2.5);  // not better than what the snapshot remembers
  });
  on.fit({.epochs = 4, .resume = lowest.path()});
  CHECK(steps_in(lowest.path()) == Steps{4, 16});
}

TEST_CASE("SnapshotEvery: the best few stay, in resumed runs too, and every Nth") {
  TemporaryFolder folder;
  const std::vector<double> score{5, 3, 4, 2, 6, 7, NAN, 8, 9, 3, 1, 5};
  const Hook publish = [&](lt::WindowContext& window) {
    const auto step = static_cast<std::size_t>(window.run.progress().step);
    window.run.metrics().publish("score", step <= score.size() ? score[step - 1] : 2.5);
  };
  const lt::SnapshotEvery how{.folder = folder.path(), .keep = 1, .best = "score", .keep_best = 3};
  {
    Toy first(how, publish);
    first.fit({.max_steps = 6});
    CHECK(steps_in(folder.path()) == Steps{2, 3, 4, 6});
  }
  Toy resumed(how, publish);
  resumed.fit({.epochs = 3, .resume = folder.path()});
  CHECK(steps_in(folder.path()) == Steps{2, 4, 11, 12});
  CHECK(resumed.trainer.policy<lt::SnapshotEvery>().best.value() == 1.0);
  CHECK(resumed.trainer.policy<lt::SnapshotEvery>().best.steps() == std::set<std::int64_t>{2, 4, 11});

  TemporaryFolder every;
  Toy({.folder = every.path(), .steps = 1, .keep = 2, .keep_every = 4}).fit();
  CHECK(steps_in(every.path()) == Steps{4, 8, 11, 12});
}

TEST_CASE("SnapshotEvery: a folder that another run writes into is refused, until that one ends") {
  TemporaryFolder folder;
  const lt::SnapshotEvery how{.folder = folder.path(), .keep = 0};
  const Hook also = [&](lt::WindowContext&) {
    CHECK_THROWS_AS(Toy(how).fit(), lt::UsageError);
    CHECK_THROWS_WITH(Toy(how).fit(), Contains(folder.path().string() + ": another run writes"));
  };
  Toy(how, also).fit({.max_steps = 1});
  CHECK(steps_in(folder.path()) == Steps{1});
  CHECK_NOTHROW(Toy(how).fit({.epochs = 3, .resume = folder.path()}));

  const pid_t child = ::fork();  // another process's lock counts, and goes when it is killed
  if (child == 0) {
    const looptorch::detail::FolderLock lock(folder.path());
    fs::create_directory(folder / "locked");
    for (;;) ::pause();
  }
  await(folder / "locked");
  CHECK_THROWS_WITH(Toy(how).fit({.epochs = 4, .resume = folder.path()}), Contains("another run writes"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_NOTHROW(Toy(how).fit({.epochs = 4, .resume = folder.path()}));
}

TEST_CASE("SnapshotEvery: a folder that was removed is locked anew, unless another run has it by now") {
  TemporaryFolder parent;
  const auto path = parent / "run";
  const lt::SnapshotEvery how{.folder = path, .steps = 1, .keep = 0};
  const auto fit = [&](const Hook& at_3, const Hook& at_5) {
    Toy* own = nullptr;
    Toy run(how, [&](lt::WindowContext& window) {
      const std::int64_t step = window.run.progress().step;
      await_writer(*own);
      if (step == 3) at_3(window);
      if (step == 5) at_5(window);
    });
    own = &run;
    run.fit({.max_steps = 5});
  };
  fit([&](lt::WindowContext&) { fs::rename(path, parent / "first"); },
      [&](lt::WindowContext&) { CHECK_THROWS_WITH(Toy(how).fit(), Contains("another run writes")); });
  CHECK(steps_in(path) == Steps{3, 4, 5});

  fs::rename(path, parent / "second");
  std::optional<looptorch::detail::FolderLock> other;
  const Hook replace = [&](lt::WindowContext&) {
    fs::rename(path, parent / "third");
    fs::create_directory(path);
    other.emplace(path);
  };
  CHECK_THROWS_WITH(fit(replace, [](lt::WindowContext&) {}), Contains("another run writes"));
  CHECK(steps_in(path).empty());
}

TEST_CASE("SnapshotEvery: a metric that is not published is an error in the second epoch") {
  TemporaryFolder folder;
  CHECK_THROWS_WITH(Toy({.folder = folder.path(), .best = "score"}).fit(),
                    Contains("SnapshotEvery waits for the metric 'score'"));
}

TEST_CASE("SnapshotEvery: what is published at an epoch's end is in the epoch's snapshot") {
  TemporaryFolder folder;
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Validate{toy::batches(2)},
                      lt::SnapshotEvery{.folder = folder.path(), .steps = 4, .best = "validation.loss"});
  trainer.fit(toy::batches(4), {.epochs = 1});
  const auto state = lt::read_snapshot(folder / "step-00000004").state;
  CHECK(state.get<std::string>("run.metrics.0.name") == "validation.loss");
  CHECK(state.get<double>("run.metrics.0.value") == *trainer.metrics().find("validation.loss"));
  CHECK(state.get<std::int64_t>("run.progress.epoch") == 1);
}

TEST_CASE("SnapshotEvery: options that cannot be are refused") {
  TemporaryFolder folder;
  const auto refused = [&](lt::SnapshotEvery how, const char* why) {
    CHECK_THROWS_WITH(Toy(how).fit(), Contains(why));
    CHECK_THROWS_AS(Toy(how).fit(), lt::UsageError);
  };
  refused({}, "needs a folder");
  refused({.folder = folder.path(), .steps = -1}, "steps must be at least 0, got -1");
  refused({.folder = folder.path(), .minutes = -2}, "minutes must be at least 0, got -2");
  refused({.folder = folder.path(), .minutes = NAN}, "minutes must be at least 0, got nan");
  refused({.folder = folder.path(), .epochs = -3}, "epochs must be at least 0, got -3");
  refused({.folder = folder.path(), .keep = -4}, "keep must be at least 0, got -4");
  refused({.folder = folder.path(), .keep_best = 0}, "keep_best must be at least 1, got 0");
  refused({.folder = folder.path(), .keep_every = -5}, "keep_every must be at least 0, got -5");
}

TEST_CASE(
    "SnapshotEvery: a folder with another run's later snapshots is refused, damaged ones are replaced") {
  TemporaryFolder folder;
  Toy({.folder = folder.path(), .steps = 4, .keep = 0}).fit();
  CHECK_THROWS_AS(Toy({.folder = folder.path()}).fit(), lt::UsageError);
  CHECK_THROWS_WITH(Toy({.folder = folder.path()}).fit({.epochs = 3, .resume = folder / "step-00000004"}),
                    Contains("from step 4 on, and there is step-00000008 already"));
  CHECK(steps_in(folder.path()) == Steps{4, 8, 12});
  for (const char* step : {"step-00000008", "step-00000012"})
    fs::resize_file(folder / step / "model.safetensors", 100);
  Warnings warnings;
  const auto result =
      Toy({.folder = folder.path(), .steps = 4, .keep = 0}).fit({.epochs = 3, .resume = folder.path()});
  CHECK(steps_in(folder.path()) == Steps{4, 8, 12});
  REQUIRE(result.resumed->rejected.size() == 2);
  CHECK_THAT(result.resumed->rejected[0], Contains("step-00000012"));
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE(
    "SnapshotEvery: a later snapshot with a flipped bit is not kept in place of those that are written") {
  TemporaryFolder folder;
  Toy({.folder = folder.path(), .steps = 4, .keep = 0}).fit();
  const auto model = folder / "step-00000012" / "model.safetensors";
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\0');  // no double of these weights ends so
  file.close();
  lt::remove_snapshot(folder / "step-00000008");
  Warnings warnings;
  Toy({.folder = folder.path(), .keep = 1}).fit({.max_steps = 10, .resume = folder.path()});
  CHECK(lt::find_newest_snapshot(folder.path()).path.filename() == "step-00000010");
}

TEST_CASE("SnapshotEvery: what a killed process left is swept, other files stay") {
  TemporaryFolder folder;
  fs::create_directory(folder / "step-00000003.partial-1-0");
  fs::create_directory(folder / "mine");
  Toy({.folder = folder.path()}).fit();
  CHECK_FALSE(fs::exists(folder / "step-00000003.partial-1-0"));
  CHECK(fs::exists(folder / "mine"));
}

TEST_CASE("SnapshotEvery: a snapshot that cannot be written stops the fit, or is reported and tried again") {
  TemporaryFolder folder;
  const fs::path into = folder / "snapshots";
  Toy* writes = nullptr;
  const auto gone = [&](std::int64_t from, std::int64_t to) {
    return [&writes, into, from, to](lt::WindowContext& window) {
      const auto step = window.run.progress().step;
      if (step == from) {
        await_writer(*writes);
        fs::rename(into, into.string() + ".away"), std::ofstream(into) << "in the way";
      }
      if (step == to) fs::remove(into), fs::rename(into.string() + ".away", into);
    };
  };
  SECTION("stop") {
    const auto before = handler_of(SIGTERM);
    Toy run({.folder = into, .steps = 2, .keep = 0}, gone(3, 100));
    writes = &run;
    CHECK_THROWS_AS(run.fit(), lt::SnapshotError);
    CHECK(run.trainer.progress().step <= 7);
    fs::remove(into), fs::rename(into.string() + ".away", into);
    CHECK(steps_in(into) == Steps{2});
    CHECK(handler_of(SIGTERM) == before);
    CHECK(run.fit().steps == 12);  // nothing of the run was lost
    CHECK(steps_in(into).back() == 12);
  }
  SECTION("warn") {
    Warnings warnings;
    Toy run({.folder = into, .steps = 2, .keep = 0, .on_error = lt::OnSnapshotError::warn}, gone(3, 7));
    writes = &run;
    CHECK(run.fit().status == lt::FitStatus::completed);
    const auto written = steps_in(into);
    CHECK(written.front() == 2);
    CHECK(written.back() == 12);
    const auto& state = run.trainer.policy<lt::SnapshotEvery>();
    CHECK(state.failures >= 1);  // at step 4; that of step 6 may come when the folder is back
    CHECK(state.failures == static_cast<std::int64_t>(6 - written.size()));
    CHECK_THAT(state.last_error, Contains(into.string()));
    REQUIRE(warnings.texts.size() == static_cast<std::size_t>(state.failures));
    CHECK_THAT(warnings.texts[0],
               Contains("training goes on without a snapshot: ") && Contains(into.string()));
  }
  SECTION("a best one that failed is not the best") {
    Toy run({.folder = into, .steps = 4, .keep = 1, .best = "score", .on_error = lt::OnSnapshotError::warn},
            [&](lt::WindowContext& window) {
              gone(2, 7)(window);
              const auto step = window.run.progress().step;
              if (step <= 3) window.run.metrics().publish("score", -static_cast<double>(step));
            });
    writes = &run;
    run.fit();
    CHECK(run.trainer.policy<lt::SnapshotEvery>().best.step() == 1);
    CHECK(steps_in(into) == Steps{1, 12});
  }
}

namespace {

/// Fails as the snapshot of this step is taken, as one does whose other ranks cannot write their parts.
struct FailsAt {
  std::int64_t step;
  struct State {
    std::int64_t now = 0;
  };
  void on_window_end(lt::WindowContext& window, State& state) const {
    state.now = window.run.progress().step;
  }
  void state_dict(lt::StateDict&, State& state) const {
    if (state.now == step) throw lt::SnapshotError("rank 1 cannot write");
  }
  void load_state_dict(const lt::StateDict&, State&) const {}
};

}  // namespace

TEST_CASE("SnapshotEvery: a snapshot that could not be taken is not the best, and the best before it stays") {
  for (const double score_of_8 : {-8.0, 8.0}) {  // the best of all, or worse than step 4's
    INFO("step 8 has the score " << score_of_8);
    TemporaryFolder folder;
    Warnings warnings;
    auto net = toy::net();
    lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
    const auto publish = [&](lt::WindowContext& window) {
      const auto step = window.run.progress().step;
      if (step == 4) window.run.metrics().publish("score", -4.0);
      if (step == 8) window.run.metrics().publish("score", score_of_8);
    };
    lt::Trainer trainer(net, optimizer, toy::objective, lt::On{lt::kUpdate, publish}, FailsAt{8},
                        lt::SnapshotEvery{.folder = folder.path(),
                                          .steps = 4,
                                          .keep = 1,
                                          .best = "score",
                                          .on_error = lt::OnSnapshotError::warn});
    trainer.fit(toy::batches(4), {.epochs = 3});
    const auto& state = trainer.policy<lt::SnapshotEvery>();
    CHECK(state.failures == 1);
    CHECK(state.best.step() == 4);
    CHECK(steps_in(folder.path()) == Steps{4, 12});
  }
}

TEST_CASE("SnapshotEvery: a folder that cannot be made is reported as the fit begins") {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "in the way";
  Toy run({.folder = folder / "file" / "snapshots"});
  CHECK_THROWS_AS(run.fit(), lt::SnapshotError);
  CHECK(run.trainer.progress().step == 0);
}

TEST_CASE("SnapshotEvery: a fit that fails leaves the snapshots that it wrote") {
  TemporaryFolder folder;
  const auto before = handler_of(SIGTERM);
  Toy run({.folder = folder.path(), .steps = 2}, [](lt::WindowContext& window) {
    if (window.run.progress().step == 7) throw std::runtime_error("no more");
  });
  CHECK_THROWS_WITH(run.fit(), "no more");
  CHECK(steps_in(folder.path()) == Steps{2, 4, 6});
  CHECK(handler_of(SIGTERM) == before);
}

TEST_CASE(
    "SnapshotEvery: a signal ends the fit after the window, with a snapshot, and handlers are put back") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    TemporaryFolder folder;
    const auto others = ::signal(signal, [](int) {});
    const auto before = handler_of(signal);
    Toy run({.folder = folder.path()}, [&](lt::WindowContext& window) {
      CHECK(handler_of(signal) != before);
      if (window.run.progress().step == 6) ::raise(signal);
    });
    const auto result = run.fit();
    CHECK(result.status == lt::FitStatus::interrupted);
    CHECK(lt::to_string(result.status) == "interrupted");
    CHECK(result.reason == lt::detail::signal_name(signal) + " was received");
    CHECK(result.steps == 6);
    CHECK(steps_in(folder.path()) == Steps{6});
    CHECK(handler_of(signal) == before);
    ::signal(signal, others);
    CHECK(run.fit().status == lt::FitStatus::completed);  // goes on, and the signal is forgotten
  }
}

TEST_CASE("SnapshotEvery: a signal in an epoch's last window is answered before the epoch's evaluation") {
  const auto run = [](const fs::path& folder, bool is_signalled, lt::FitOptions options) {
    toy::Net net = toy::net();
    lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
    bool was_there = true;
    const auto looks = [&](toy::Net& model, const toy::Batch& batch) {
      const auto manifest = folder / "step-00000004" / "manifest.json";
      for (int i = 0; is_signalled && i < 1000 && !fs::exists(manifest); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      was_there = was_there && fs::exists(manifest);
      return toy::objective(model, batch);
    };
    lt::Trainer trainer(net, optimizer, toy::objective, lt::SnapshotEvery{.folder = folder},
                        lt::Validate{toy::batches(2, 5), looks},
                        lt::On{lt::kClip, [&](lt::WindowContext& window) {
                                 if (is_signalled && window.run.progress().step == 4) ::raise(SIGTERM);
                               }});
    const auto result = trainer.fit(toy::batches(4), options);
    if (is_signalled) CHECK((result.status == lt::FitStatus::interrupted && result.steps == 4 && was_there));
    return net;
  };
  const TemporaryFolder folder, whole;
  (void)run(folder.path(), true, {.epochs = 2});
  CHECK(steps_in(folder.path()) == Steps{4});
  auto resumed = run(folder.path(), false, {.epochs = 2, .resume = folder.path()});
  auto uninterrupted = run(whole.path(), false, {.epochs = 2});
  CHECK(toy::distance(resumed, uninterrupted) == 0.0);
}

TEST_CASE("SnapshotEvery: a second signal acts at once, as it would have without a fit") {
  static int mine = 0;
  mine = 0;
  TemporaryFolder folder, other;
  const Hook twice = [](lt::WindowContext& window) {
    if (window.run.progress().step == 2) ::raise(SIGTERM), ::raise(SIGINT);
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGINT, SIG_DFL);
    at::set_num_threads(1);
    Toy({.folder = folder.path()}, twice).fit();
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
  const auto others = ::signal(SIGINT, [](int) { ++mine; });
  CHECK(Toy({.folder = other.path()}, twice).fit().status == lt::FitStatus::interrupted);
  CHECK(mine == 1);
  ::signal(SIGINT, others);
}

TEST_CASE("SnapshotEvery: signals are left alone where that is asked for, and where they are ignored") {
  TemporaryFolder folder, other;
  const Hook raise_at_6 = [](lt::WindowContext& window) {
    if (window.run.progress().step == 6) ::raise(SIGTERM);
  };
  static int mine = 0;
  mine = 0;
  const auto others = ::signal(SIGTERM, [](int) { ++mine; });
  CHECK(Toy({.folder = folder.path(), .on_signals = false}, raise_at_6).fit().status ==
        lt::FitStatus::completed);
  CHECK(mine == 1);
  ::signal(SIGTERM, SIG_IGN);
  CHECK(Toy({.folder = other.path()}, raise_at_6).fit().status == lt::FitStatus::completed);
  CHECK(handler_of(SIGTERM) == SIG_IGN);
  ::signal(SIGTERM, others);
}

TEST_CASE("SnapshotEvery: a signal ends all fits of the process, in whichever threads") {
  TemporaryFolder one, two;
  const auto before = handler_of(SIGTERM);
  std::promise<void> both, sent;
  std::atomic<int> there{0};
  const auto ready = sent.get_future().share();
  const Hook meet = [&](lt::WindowContext& window) {
    if (window.run.progress().step != 3) return;
    if (++there == 2) both.set_value();
    ready.wait();
  };
  const auto run = [&](const fs::path& folder) {
    return std::async(std::launch::async, [&meet, folder] { return Toy({.folder = folder}, meet).fit(); });
  };
  auto first = run(one.path()), second = run(two.path());
  both.get_future().wait();
  ::raise(SIGTERM);
  sent.set_value();
  CHECK(first.get().status == lt::FitStatus::interrupted);
  CHECK(second.get().status == lt::FitStatus::interrupted);
  CHECK(steps_in(one.path()) == Steps{3});
  CHECK(steps_in(two.path()) == Steps{3});
  CHECK(handler_of(SIGTERM) == before);
}

TEST_CASE("SnapshotEvery: in a loop of one's own") {
  TemporaryFolder folder;
  const auto before = handler_of(SIGINT);
  {
    Toy run({.folder = folder.path(), .steps = 3, .keep = 0});
    for (const auto& batch : toy::batches(7)) CHECK_FALSE(run.trainer.step(batch).stop_requested);
    ::raise(SIGINT);
    CHECK(run.trainer.step(run.batches[0]).stop_requested);
  }
  CHECK(steps_in(folder.path()) == Steps{3, 6, 8});
  CHECK(handler_of(SIGINT) == before);
}

TEST_CASE("Run::interrupt: a policy's own reason to end, with a snapshot") {
  TemporaryFolder folder;
  Toy run({.folder = folder.path()}, [](lt::WindowContext& window) {
    if (window.run.progress().step == 5) window.run.interrupt("the hour is over");
  });
  const auto result = run.fit();
  CHECK(result.status == lt::FitStatus::interrupted);
  CHECK(result.reason == "the hour is over");
  CHECK(steps_in(folder.path()) == Steps{5});
}
