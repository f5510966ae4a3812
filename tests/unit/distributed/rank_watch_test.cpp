// SPDX-License-Identifier: MIT
// Injected faults: whatever happens to one rank, all others end soon, with a sentence that names rank and
// cause.
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <sys/resource.h>

#include <chrono>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

namespace lt = looptorch;

namespace rank_watch_test {

/// A fault of one of two ranks, and how the other's sentence begins. Where it is an exception, which ends the
/// fit in `step` of the rank that throws it, the sentence is that exception's own.
struct Fault {
  std::string name, sentence;
  int rank = 1;
};

/// LibTorch's sentence about two shapes, whose wording differs from version to version.
std::string error_of_product() {
  try {
    (void)at::mm(torch::zeros({2, 3}), torch::zeros({4, 5}));
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  throw std::logic_error("matrices of these shapes were multiplied");
}

/// Faults that leave the processes alive. All of them run in one process a rank, one after the other.
const std::vector<Fault> kFaults{
    {"exception", "rank 1 ended in step 3: no more disk"},
    {"exception", "rank 0 ended in step 3: no more disk", 0},
    {"unknown exception", "rank 1 ended in step 3: an exception"},
    {"host memory", "rank 1 ended in step 3: std::bad_alloc"},
    {"device memory", "rank 1 ended in step 3: out of memory on the device"},
    {"product", "rank 1 ended in step 3: " + error_of_product()},
    {"before update", "rank 1 ended in step 3: before update"},
    {"after update", "rank 1 ended in step 4: after update"},
    {"window hook", "rank 1 ended in step 4: window hook"},
    {"epoch hook", "rank 1 ended in step 6: epoch hook"},
    {"loader", "rank 1 ended in step 3: "},
    {"evaluation", "rank 1 ended in step 3: evaluation"},
    {"snapshot", "rank 0 ended in step ", 0},
    {"full disk", "rank 0 ended in step ", 0},
    {"NaN", "rank 1: the loss of update is NaN or infinite in step 3"},
    {"buffers", "the model must be the same on all ranks: rank 0 has 4 tensors of 67 numbers"},
    {"parameters", "the model must be the same on all ranks: rank 0 has 4 tensors of 67 numbers"},
    {"shape", "the model must be the same on all ranks: rank 0 has 5 tensors of 71 numbers"},
    {"dtype", "the model must be the same on all ranks: rank 0 has 5 tensors of 71 numbers"},
    {"device", "the model must be the same on all ranks: rank 0 has 5 tensors of 71 numbers"},
    {"frozen",
     "the gradients to sum must be the same on all ranks: rank 0 has those of 4 tensors of 67 numbers"},
    {"buckets",
     "the gradients to sum must be the same on all ranks: rank 0 has those of 4 tensors of 67 numbers"},
    {"epochs",
     "the length of fit must be the same on all ranks: rank 0 has epochs 3, max_steps none, rank 1 "
     "has epochs 2, max_steps none"},
    {"steps",
     "the length of fit must be the same on all ranks: rank 0 has epochs 3, max_steps none, rank 1 "
     "has epochs 3, max_steps 5"},
    {"window", "the length of a window must be the same on all ranks: rank 0 has 1, rank 1 has 2"},
    {"policy",
     "the ranks do different things: rank 1 is at an evaluation after step 3, rank 0 at the end of step 3"},
    {"skipped", "whether the update takes part must be the same on all ranks: rank 0 has yes, rank 1 has no"},
    {"chunks",
     "the chunks of DataParallel{.reproducible} must be the same on all ranks: rank 0 has none, rank 1 has 2"},
    {"late", "rank 0 has waited 2 s for the others at the end of step 4; rank 1 is at the end of step 3"},
};

/// Faults that take the process away. Each needs processes of its own.
const std::vector<Fault> kDeaths{
    {"killed", "rank 0 shows no sign of life for ", 0},
    {"stopped", "rank 1 shows no sign of life for "},
    {"exit", "rank 1 shows no sign of life for "},
    {"abort", "rank 1 shows no sign of life for "},
};

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What goes wrong in the objective of a rank in the fourth window.
void fail_by(const std::string& fault) {
  if (fault == "exception") throw std::runtime_error("no more disk");
  if (fault == "unknown exception") throw 42;
  if (fault == "host memory") throw std::bad_alloc();
  if (fault == "device memory") TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory on the device");
  if (fault == "product") (void)torch::zeros({2, 3}).matmul(torch::zeros({4, 5}));
  if (fault == "killed") ::raise(SIGKILL);
  if (fault == "exit") std::_Exit(0);
  if (fault == "abort") std::abort();
  if (fault == "stopped") ::raise(SIGSTOP);
}

/// Samples of which the fourth cannot be read on one rank.
struct Samples {
  std::vector<toy::Batch> batches;
  bool faulty;
  [[nodiscard]] std::int64_t size() const { return std::ssize(batches); }
  [[nodiscard]] toy::Batch get(std::int64_t index) const {
    if (faulty && index == 3) throw std::runtime_error("loader");
    return batches[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] toy::Batch collate(std::span<toy::Batch> samples) const { return samples.front(); }
};

/// One fit that ends by `fault`.
class FaultyFit {
 public:
  FaultyFit(std::string fault, bool faulty) : fault_(std::move(fault)), faulty_(faulty) {}

  /// When the fault happened on this rank; the fit's beginning for those that are there from then on.
  [[nodiscard]] double at() const { return at_; }

  void run() {
    toy::Net net = toy::net();
    change(net);
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) { return loss(net, batch); };
    const auto takes_part = [&](const lt::Run& run) {
      return !(here("skipped") && run.progress().step == 3);
    };
    const auto held_out = toy::batches(1);
    const auto measure = [&](toy::Net& net, const toy::Batch& batch) {
      if (here("evaluation")) happens(), throw std::runtime_error("evaluation");
      return toy::objective(net, batch);
    };
    const auto throw_at = [&](const char* name, std::int64_t step) {
      return [this, name, step](auto& context) {
        if (here(name) && context.run.progress().step == step) happens(), throw std::runtime_error(name);
      };
    };
    const auto at_update = throw_at("before update", 3), after_update = throw_at("after update", 3);
    const auto at_window = [&, of_window = throw_at("window hook", 4)](lt::WindowContext& window) {
      of_window(window);
      if (here("late") && window.run.progress().step == 4) {
        happens();
        std::this_thread::sleep_for(std::chrono::seconds(5));
      }
    };
    lt::DataParallel parallel{.timeout = std::chrono::seconds(fault_ == "late" ? 2 : 300)};
    if (here("buckets")) parallel.bucket_bytes = 1;
    if (here("chunks")) parallel.reproducible = true, parallel.chunks = 2;
    lt::Trainer trainer(
        net, lt::Update(optimizer, objective, {.when = takes_part}), lt::Accumulate<>{here("window") ? 2 : 1},
        lt::When{here("policy"), lt::Validate{held_out, lt::ValidateOptions{.every = 3}}},
        lt::When{fault_ == "evaluation", lt::Validate{held_out, measure, {.every = 3, .name = "other"}}},
        lt::When{fault_ == "snapshot" || fault_ == "full disk",
                 lt::SnapshotEvery{.folder = ranks::folder() / (fault_ == "snapshot" ? "file" : "disk"),
                                   .steps = 3}},
        lt::On{lt::kClip, [&](lt::UpdateContext& update) { at_update(update); }},
        lt::On{lt::kSchedule, [&](lt::UpdateContext& update) { after_update(update); }},
        lt::On{lt::kSchedule, at_window},
        lt::On{lt::kSchedule,
               [of_epoch = throw_at("epoch hook", 6)](lt::EpochContext& epoch) { of_epoch(epoch); }},
        parallel);
    lt::FitOptions options{.epochs = here("epochs") ? 2 : 3};
    if (here("steps")) options.max_steps = 5;
    at_ = now();
    if (fault_ == "loader")
      trainer.fit(lt::PinnedPrefetchLoader(Samples{toy::batches(6), faulty_}, {.workers = 1}), options);
    else
      trainer.fit(toy::batches(6), options);
  }

 private:
  [[nodiscard]] bool here(const std::string& fault) const { return faulty_ && fault_ == fault; }
  void happens() { at_ = now(); }

  /// Makes a rank's model another one.
  void change(toy::Net& net) const {
    if (here("buffers")) net->register_buffer("more", torch::zeros({3}));
    if (here("parameters")) net->register_parameter("more", torch::zeros({3}));
    if (fault_ == "shape")
      net->register_buffer("more", torch::zeros(here("shape") ? std::vector<std::int64_t>{2, 2}
                                                              : std::vector<std::int64_t>{4}));
    if (fault_ == "dtype")
      net->register_buffer("more", torch::zeros({4}, here("dtype") ? torch::kFloat : torch::kDouble));
    if (fault_ == "device")
      net->register_buffer("more", torch::zeros({4}, here("device") ? torch::kMeta : torch::kCPU));
    if (here("frozen")) net->first->bias.requires_grad_(false);
  }

  lt::Loss loss(toy::Net& net, const toy::Batch& batch) {
    if (!faulty_ || seen_++ != 3) return toy::objective(net, batch);
    happens();
    if (std::ranges::any_of(kDeaths, [&](const Fault& death) { return death.name == fault_; }))
      std::cout << std::fixed << "begins " << at_ << std::endl;
    fail_by(fault_);
    lt::Loss loss = toy::objective(net, batch);
    if (here("NaN")) loss.value = loss.value * std::nan("");
    return loss;
  }

  std::string fault_;
  bool faulty_;
  std::int64_t seen_ = 0;
  double at_ = 0.0;
};

/// Lets no file of this process grow beyond some bytes while it lives: writing fails as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(bool is_full) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit full = before_;
    full.rlim_cur = 256;
    if (is_full) ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

/// Runs a fit that ends by `fault` and writes what it said, and when.
void report(const Fault& fault) {
  const bool faulty = ranks::rank() == fault.rank;
  FaultyFit fit(fault.name, faulty);
  std::string said = "nothing: the fit went through";
  try {
    const FullDisk disk(faulty && fault.name == "full disk");
    fit.run();
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  } catch (const std::exception& error) {
    said = error.what();
  } catch (...) {
    said = "an exception";
  }
  std::cout << "times " << std::fixed << fit.at() << ' ' << now() << "\nsaid "
            << said.substr(0, said.find('\n')) << std::endl;
}

TEST_CASE("faults in one process", "[.ranks]") {
  if (!ranks::is_started()) return;
  std::ofstream(ranks::folder() / "file") << "no folder";
  const char* const only = std::getenv("FAULT");
  for (const Fault& fault : kFaults) {
    if (only && fault.name != only) continue;
    report(fault);
    lt::ProcessGroup::reconnect();
  }
}

TEST_CASE("a fault that takes the process", "[.ranks]") {
  if (!ranks::is_started()) return;
  for (const Fault& fault : kDeaths)
    if (fault.name == std::getenv("FAULT")) report(fault);
}

/// What a rank said of each fault, when its own fault happened, and when its fit ended.
struct Report {
  double fault = 0.0, end = 0.0;
  std::string said;
};
std::vector<Report> reports_in(const std::string& output) {
  std::vector<Report> reports;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("times "))
      std::istringstream(line.substr(6)) >> reports.emplace_back().fault >> reports.back().end;
    if (line.starts_with("said ") && !reports.empty()) reports.back().said = line.substr(5);
  }
  return reports;
}

TEST_CASE("A fault of one rank ends all, with its cause") {
  const lt::testing::TemporaryFolder folder;
  const auto outcomes = ranks::run_ranks(2, "faults in one process", folder.path());
  const auto first = reports_in(outcomes[0].output), second = reports_in(outcomes[1].output);
  INFO(outcomes[0].output << outcomes[1].output);
  REQUIRE(first.size() == kFaults.size());
  REQUIRE(second.size() == kFaults.size());
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    const Fault& fault = kFaults[i];
    const Report& own = fault.rank == 0 ? first[i] : second[i];
    const Report& other = fault.rank == 0 ? second[i] : first[i];
    CAPTURE(fault.name, fault.rank, own.said, other.said);
    CHECK(other.said.starts_with(fault.sentence));
    CHECK_FALSE(own.said.starts_with("nothing"));
    if (const auto end = fault.sentence.find(" ended in step "); end != std::string::npos)
      CHECK(other.said.ends_with(": " + own.said));
    CHECK(std::max(own.end, other.end) - own.fault < 10);
  }
}

TEST_CASE("A process that dies or is stopped ends all other ranks") {
  for (const Fault& fault : kDeaths) {
    const lt::testing::TemporaryFolder folder;
    const auto outcomes =
        ranks::run_ranks(3, "a fault that takes the process", folder.path(), {{"FAULT", fault.name}},
                         std::chrono::seconds(60), fault.name == "stopped" ? fault.rank : -1);
    const std::string& last = outcomes[static_cast<std::size_t>(fault.rank)].output;
    const std::size_t at = last.find("begins ");
    REQUIRE(at != std::string::npos);
    const double begin = std::stod(last.substr(at + 7));
    for (int rank : {0, 1, 2}) {
      const auto reports = reports_in(outcomes[static_cast<std::size_t>(rank)].output);
      CAPTURE(fault.name, rank, outcomes[static_cast<std::size_t>(rank)].output);
      CHECK(reports.size() == (rank == fault.rank ? 0 : 1));
      if (rank == fault.rank || reports.empty()) continue;
      CHECK(reports[0].said.starts_with(fault.sentence));
      CHECK(reports[0].said.find("waits at the end of step 3") != std::string::npos);
      CHECK(reports[0].end - begin < 10);
    }
  }
}

TEST_CASE("A rank that ends because another is silent tells of the silence, not of its own end") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<lt::detail::RankWatch>> watches;
  for (std::int64_t rank = 0; rank < 3; ++rank)
    watches.push_back(std::make_unique<lt::detail::RankWatch>(store, rank, 3));
  for (const auto& watch : watches) watch->begin_fit(), watch->at("a moment");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  watches[1].reset();
  const auto said_by = [&](std::size_t rank) -> std::string {
    for (int tries = 0; tries < 200; ++tries) {
      try {
        watches[rank]->check("a moment");
      } catch (const lt::RanksDiffer& error) {
        return error.what();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return "nothing";
  };
  const std::string first = said_by(0);
  CHECK(first.starts_with("rank 1 shows no sign of life"));
  watches[0]->fail("rank 0 ended in step 3: " + first);
  CHECK(said_by(2) == first);  // heard, as it was told
}

TEST_CASE("Rank 0, with which the store may end, does not end before all have heard why") {
  using namespace std::chrono_literals;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto watch_of = [&](std::int64_t rank) {
    auto watch = std::make_unique<lt::detail::RankWatch>(store, rank, 3);
    watch->begin_fit();
    return watch;
  };
  const auto zero = watch_of(0), one = watch_of(1);
  const auto failing = std::async(std::launch::async, [&] { one->fail("rank 1 ended: no more disk"); });
  std::string heard;
  for (int tries = 0; tries < 100 && heard.empty(); ++tries) {
    std::this_thread::sleep_for(50ms);
    try {
      zero->check("a moment");
    } catch (const lt::RanksDiffer& error) {
      heard = error.what();
    }
  }
  CHECK(heard == "rank 1 ended: no more disk");
  std::unique_ptr<lt::detail::RankWatch> two;
  const auto late = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(500ms);
    two = watch_of(2);
  });
  zero->fail(heard);
  CHECK(store->check({"looptorch heard 1 2"}));
  late.wait();
}

TEST_CASE("Of many ranks, those that do not read a silent one hear of it from those that do") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  constexpr std::int64_t kRanks = 3 * lt::detail::kWatchedRanks, kSilent = 7;
  std::vector<std::unique_ptr<lt::detail::RankWatch>> watches;
  for (std::int64_t rank = 0; rank < kRanks; ++rank)
    watches.push_back(std::make_unique<lt::detail::RankWatch>(store, rank, kRanks));
  for (const auto& watch : watches) watch->begin_fit(), watch->at("a moment");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  for (const auto& watch : watches) CHECK_NOTHROW(watch->check("a moment"));
  watches[kSilent].reset();

  const auto begin = std::chrono::steady_clock::now();
  std::map<std::int64_t, std::string> said;
  while (std::ssize(said) < kRanks - 1 &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (std::int64_t rank = 0; rank < kRanks; ++rank) try {
        if (rank != kSilent && said.count(rank) == 0)
          watches[static_cast<std::size_t>(rank)]->check("a moment");
      } catch (const lt::RanksDiffer& error) {
        said[rank] = error.what();
      }
  }
  CHECK(said.size() == kRanks - 1);
  for (const auto& [rank, sentence] : said) {
    CAPTURE(rank, sentence);
    CHECK(sentence.starts_with("rank 7 shows no sign of life for 6 s"));
    CHECK(sentence.find("It was last at a moment") != std::string::npos);
  }
}

/// A store of which the process that holds it goes away.
struct LostStore : c10d::HashStore {
  std::atomic<bool> is_lost{false};
  void set(const std::string& key, const std::vector<std::uint8_t>& data) override {
    if (is_lost) throw std::runtime_error("connection reset by peer");
    c10d::HashStore::set(key, data);
  }
};

TEST_CASE("A rank that fails does not wait to tell the others through a store that is gone") {
  const auto store = c10::make_intrusive<LostStore>();
  lt::detail::RankWatch watch(store, 1, 3);
  watch.begin_fit();
  store->is_lost = true;
  const auto begin = std::chrono::steady_clock::now();
  watch.fail("rank 0 shows no sign of life");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
}

}  // namespace rank_watch_test
