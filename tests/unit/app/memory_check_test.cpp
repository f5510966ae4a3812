// SPDX-License-Identifier: MIT
// --preflight and --memory as a program has them.
#include "support/precompiled.hpp"

#include <looptorch/app/memory_check.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/toy.hpp"

#include <string>

namespace app = looptorch::app;
namespace lt = looptorch;
using Catch::Matchers::Contains;

TEST_CASE("app: the line on memory has what the device has and what the run will hold") {
  const lt::HeldMemory held{.weights = 151'000'000, .gradients = 149'000'000, .optimizer = 297'000'000};
  CHECK(
      app::memory_line(at::kCPU, held,
                       lt::MemoryCapacity{.total = 25'300'000'000, .available = 24'100'000'000}) ==
      "memory: 24.1 GB of 25.3 GB to use on cpu; the run will hold 597 MB beside its activations: weights 151 "
      "MB, gradients 149 MB, optimizer 297 MB");
  CHECK_THAT(app::memory_line(at::Device("cuda:1"), held,
                              lt::MemoryCapacity{.total = 4'000'000'000, .available = 500'000'000}),
             Contains("500 MB of 4 GB to use on cuda:1; ") && Contains("; that is more than there is"));
  CHECK_THAT(app::memory_line(at::kCPU, held, std::nullopt),
             Contains("memory: the run will hold 597 MB beside its "));
}

TEST_CASE("app: a preflight is made if the flag asks, and ends a run that does not fit") {
  toy::Net net = toy::net();
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, toy::objective, lt::WatchMemory{.out = nullptr});
  const auto batches = [all = toy::batches(4)] { return all; };
  {
    looptorch::testing::CapturedStderr said;
    app::check_memory({}, trainer, batches);  // without the flag
    CHECK_THAT(said.text(),
               Contains("to use on cpu; the run will hold 2.14 KB beside its activations: weights "
                        "536 bytes, gradients 536 bytes, optimizer 1.07 KB\n") &&
                   !Contains("preflight"));
    app::check_memory({.preflight = true}, trainer, batches);
    CHECK_THAT(said.text(), Contains("preflight: the run fits: needs ") && !Contains("does not fit"));
  }
  looptorch::testing::CapturedStderr said;
  CHECK_THROWS_AS(app::check_memory({.preflight = true, .memory_cap = 1e-6}, trainer, batches),
                  app::DoesNotFit);
  CHECK_THROWS_WITH(app::check_memory({.preflight = true, .memory_cap = 1e-6}, trainer, batches),
                    Contains("does not fit into 1 KB: nothing that was tried would"));
  CHECK_THAT(said.text(), Contains("preflight: the run does not fit: ") &&
                              Contains("  tried, and does not fit: --batch-size 1 --gradient-accumulation "));
  CHECK(trainer.progress().step == 0);
}

TEST_CASE("app: a watched run's peak and its parts are in the summary, an unwatched one's are not") {
  toy::Net net = toy::net();
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, toy::objective, lt::WatchMemory{.out = nullptr});
  app::Summary before, after;
  app::set_memory(before, trainer.policy<lt::WatchMemory>());
  CHECK(before.text() == "{}");
  trainer.fit(toy::batches(4));
  const auto& watched = trainer.policy<lt::WatchMemory>();
  app::set_memory(after, watched);
  CHECK_THAT(after.text(), Contains("\"memory_peak\": " + std::to_string(watched.peak().bytes)) &&
                               Contains("\"memory_phase\": \"") &&
                               Contains("\"weights\": " + std::to_string(watched.breakdown().weights)));
}
