// SPDX-License-Identifier: MIT
// Injected faults: whatever happens to one rank, all others end soon, with a sentence that names rank and
// cause.
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <iostream>

namespace lt = looptorch;

namespace rank_watch_test {

void say_time(const char* what) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::cout << what << ' ' << std::chrono::duration<double>(now).count() << std::endl;
}

/// What goes wrong on rank 1 in the fourth window.
void fail_by(const std::string& fault) {
  say_time("fault");
  if (fault == "exception") throw std::runtime_error("no more disk");
  if (fault == "memory") throw std::bad_alloc();
  if (fault == "shape") (void)torch::zeros({2, 3}).matmul(torch::zeros({4, 5}));
  if (fault == "killed") ::raise(SIGKILL);
  if (fault == "exit") ::_exit(3);
  if (fault == "stopped") ::raise(SIGSTOP);
}

TEST_CASE("rank with a fault", "[.ranks]") {
  if (!ranks::is_started()) return;
  const std::string fault = std::getenv("FAULT");
  const bool faulty = std::to_string(ranks::rank()) == std::getenv("FAULTY_RANK");
  toy::Net net = toy::net();
  if (fault == "model" && faulty) net->register_buffer("more", torch::zeros({3}));
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const std::vector<toy::Batch> held_out = toy::batches(1);
  std::int64_t seen = 0;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    if (faulty && seen++ == 3) fail_by(fault);
    return toy::objective(net, batch);
  };
  lt::FitOptions options{.epochs = 3};
  if (fault == "length" && faulty) options.epochs = 2;
  const std::chrono::seconds patience(fault == "late" ? 2 : 300);
  lt::Trainer trainer(
      net, optimizer, objective, lt::Accumulate<>{fault == "window" && faulty ? 2 : 1},
      lt::When{fault == "evaluation" && faulty, lt::Validate{held_out, lt::ValidateOptions{.every = 3}}},
      lt::On{lt::kSchedule,
             [&](lt::WindowContext& window) {
               if (faulty && window.run.progress().step == 4 && fault == "late")
                 std::this_thread::sleep_for(std::chrono::seconds(8));
             }},
      lt::DataParallel{.patience = patience});
  try {
    trainer.fit(toy::batches(6), options);
    std::cout << "the fit went through" << std::endl;
  } catch (const std::exception& error) {
    say_time("ended");
    std::cout << "said: " << error.what() << std::endl;
  }
}

/// Returns what each rank said, and how long after the fault the last of the others ended, in seconds.
struct Reports {
  std::vector<std::string> said;
  double seconds = 0.0;
};
double time_in(const std::string& output, const std::string& what) {
  const auto at = output.find(what + ' ');
  return at == std::string::npos ? 0.0 : std::stod(output.substr(at + what.size() + 1));
}
Reports reports_of(const std::string& fault, int size, int faulty) {
  const lt::testing::TemporaryFolder folder;
  const ranks::Variables variables{{"FAULT", fault}, {"FAULTY_RANK", std::to_string(faulty)}};
  const auto outcomes = ranks::run_ranks(size, "rank with a fault", folder.path(), variables,
                                         std::chrono::seconds(60), fault == "stopped" ? faulty : -1);
  Reports reports;
  double begin = 0.0, end = 0.0;
  for (const auto& outcome : outcomes) {
    const auto at = outcome.output.find("said: ");
    reports.said.push_back(
        at == std::string::npos ? "" : outcome.output.substr(at + 6, outcome.output.find('\n', at) - at - 6));
    begin = std::max(begin, time_in(outcome.output, "fault"));
    end = std::max(end, time_in(outcome.output, "ended"));
  }
  if (begin > 0.0) reports.seconds = end - begin;
  return reports;
}

struct Fault {
  std::string name, sentence;
  int rank = 1;
};

TEST_CASE("A fault of one rank ends all, with its cause") {
  const std::vector<Fault> faults{
      {"exception", "rank 1 ended in step 3: no more disk"},
      {"exception", "rank 0 ended in step 3: no more disk", 0},
      {"shape", "rank 1 ended in step 3: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"},
      {"model", "the model must be the same on all ranks: rank 0 has 4 tensors of 67 numbers"},
      {"length",
       "the length of fit must be the same on all ranks: rank 0 has epochs 3, max_steps none, rank 1 "
       "has epochs 2, max_steps none"},
      {"evaluation",
       "the ranks do different things: rank 1 is at an evaluation after step 3, rank 0 at the end of step 3"},
      {"window", "the length of a window must be the same on all ranks: rank 0 has 1, rank 1 has 2"},
      {"late", "rank 0 has waited 2 s for the others at the end of step 4; rank 1 is at the end of step 3"},
  };
  for (const Fault& fault : faults) {
    const Reports reports = reports_of(fault.name, 2, fault.rank);
    CAPTURE(fault.name, fault.rank, reports.said);
    CHECK(reports.said[fault.rank == 1 ? 0 : 1].find(fault.sentence) == 0);
    CHECK_FALSE(reports.said[fault.rank == 1 ? 1 : 0].empty());
    CHECK(reports.seconds < 10);
  }
}

TEST_CASE("A process that dies or is stopped ends all other ranks") {
  for (const std::string fault : {"killed", "stopped"})
    for (const int faulty : {0, 1}) {
      const Reports reports = reports_of(fault, 2, faulty);
      CAPTURE(fault, faulty, reports.said);
      const std::string& said = reports.said[static_cast<std::size_t>(1 - faulty)];
      CHECK(said.find("rank " + std::to_string(faulty) + " shows no sign of life for ") == 0);
      CHECK(said.find("waits at the end of step 3") != std::string::npos);
      CHECK(reports.seconds < 10);
    }
}

}  // namespace rank_watch_test
