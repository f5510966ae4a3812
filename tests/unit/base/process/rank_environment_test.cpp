// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/process/rank_environment.hpp>

#include "support/catch.hpp"

#include <cstdlib>
#include <map>

namespace lt = looptorch;

namespace rank_environment_test {

/// Sets what a launcher sets while it lives; everything else that launchers set is away.
class Launched {
 public:
  explicit Launched(const std::map<std::string, std::string>& variables) {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Launched() {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

 private:
  static constexpr const char* kNames[] = {
      "RANK",          "WORLD_SIZE",       "TORCHELASTIC_USE_AGENT_STORE",
      "LOCAL_RANK",    "LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE",
      "MASTER_ADDR",   "MASTER_PORT",      "SLURM_STEP_NODELIST",
      "SLURM_PROCID",  "SLURM_NTASKS",     "SLURM_STEP_NUM_TASKS",
      "SLURM_LOCALID", "SLURM_JOB_ID"};
  std::map<std::string, std::string> before_;
};

TEST_CASE("Ranks are those of the launcher") {
  {
    const Launched none({});
    CHECK(lt::rank_environment().size == 1);
  }
  {
    const Launched torchrun({{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "host"},
                             {"MASTER_PORT", "1234"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    const lt::RankEnvironment found = lt::rank_environment();
    CHECK((found.rank == 3 && found.size == 4 && found.local_rank == 1 && found.local_size == 2 &&
           found.port == 1234));
    CHECK((found.address == "host" && found.store_runs));
  }
  {
    const Launched slurm({{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_STEP_NODELIST", "node[07-09,12],other"},
                          {"SLURM_JOB_ID", "123456"}});
    const lt::RankEnvironment found = lt::rank_environment();
    CHECK((found.rank == 5 && found.size == 8 && found.local_rank == 1 && found.local_size == 2 &&
           !found.store_runs));
    CHECK(found.address == "node07");
    CHECK(found.port == 23456);
  }
  {
    const Launched by_hand({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "host"}});
    CHECK(lt::rank_environment().local_size == 4);
  }
  CHECK(lt::detail::first_host("alpha,beta[1-2]") == "alpha");
  CHECK(lt::detail::first_host("gpu[3]") == "gpu3");
  CHECK(lt::detail::first_host("single") == "single");
}

TEST_CASE("A launcher's environment that makes no sense is refused") {
  const auto said = [](const std::map<std::string, std::string>& variables) {
    const Launched launched(variables);
    try {
      (void)lt::rank_environment();
    } catch (const lt::UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(said({{"RANK", "two"}, {"WORLD_SIZE", "4"}}) == "RANK must be a number from 0 on, it is 'two'");
  CHECK(said({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "host"}}) ==
        "rank 4 of 4 processes: the launcher's environment is not consistent");
  CHECK(said({{"RANK", "0"}, {"WORLD_SIZE", "4"}}) ==
        "the launcher has not set MASTER_ADDR, the host of rank 0, which several ranks need");
  for (const std::string port : {"70000", "0"})  // torchrun --master-port 0 says 0
    CHECK(said({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "host"}, {"MASTER_PORT", port}}) ==
          "MASTER_PORT must be a port from 1 to 65535, it is " + port +
              ": give torchrun another --master-port, or --standalone, which finds one");
}

}  // namespace rank_environment_test
