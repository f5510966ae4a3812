// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/training_options.hpp>

#include "support/as_rank.hpp"
#include "support/captured_stderr.hpp"

#include <string>
#include <vector>

using Catch::Contains;
namespace app = looptorch::app;
using looptorch::testing::AsRank;

TEST_CASE("The ranks share all samples, each once, and one process has the sampler's own order") {
  const looptorch::RandomSampler order{.seed = 3};
  const auto whole = app::shard_of_rank(order);
  CHECK(app::leads());
  CHECK(whole.order(2, 7) == order.order(2, 7));
  CHECK(whole.identity() == looptorch::detail::sampler_identity(order));  // snapshots without ranks go on
  std::vector<std::int64_t> all;
  for (int rank : {0, 1, 2}) {
    const AsRank as(rank, 3);
    CHECK(app::leads() == (rank == 0));
    const auto share = app::shard_of_rank(order).order(2, 7);
    CHECK(share.size() == (rank == 0 ? 3 : 2));
    all.insert(all.end(), share.begin(), share.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(all == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("Ranks draw different random numbers") {
  const auto drawn = [] {
    app::TrainingOptions{.seed = 5}.seed_generators();
    return torch::rand({2}, torch::kDouble);
  };
  const auto alone = drawn();
  torch::manual_seed(5);
  CHECK(alone.equal(torch::rand({2}, torch::kDouble)));
  {
    const AsRank as(0, 2);
    CHECK(drawn().equal(alone));
  }
  {
    const AsRank as(1, 2);
    CHECK_FALSE(drawn().equal(alone));
  }
}

TEST_CASE(
    "A program without looptorch::distributed refuses several processes, and names itself with its rank") {
  const AsRank as(1, 2);
  CHECK_THROWS_WITH((void)app::TrainingOptions{.device = "cpu"}.choose_device(),
                    Contains("2 processes were started, and this program was built without Gloo's headers"));
  app::CommandLine line("program", "Does nothing.");
  std::string name = "program";
  char* argv[] = {name.data(), nullptr};
  const looptorch::testing::CapturedStderr captured;
  CHECK(app::run_main(1, argv, line, [] { (void)app::TrainingOptions{.device = "cpu"}.choose_device(); }) ==
        2);
}
