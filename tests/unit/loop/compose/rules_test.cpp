// SPDX-License-Identifier: MIT
// Every pair of policies trains: one Trainer that lists all of them within When, switched on two at a time.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <array>
#include <string>

namespace lt = looptorch;

namespace {

enum Policy {
  kAccumulate,
  kHalf,
  kBfloat,
  kAverage,
  kBackend,
  kFlush,
  kClipNorm,
  kClipValue,
  kOn,
  kRestore,
  kSchedule,
  kProgress,
  kStop,
  kUnfreeze,
  kValidate,
  kPolicies
};
/// What must not change a single bit of training in fp64 (autocast leaves fp64 alone; loss scaling is exact).
constexpr std::array kWatchers{kHalf, kBfloat, kAverage, kBackend, kFlush, kOn, kProgress, kStop, kValidate};

struct Outcome {
  toy::Net net;
  lt::FitResult result;
};

Outcome trained(int first, int second) {
  const auto on = [&](int policy) { return policy == first || policy == second; };
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
  const auto data = toy::batches(9), held_out = toy::batches(3, 2);
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  lt::Trainer trainer(
      net, adamw, toy::objective, lt::When{on(kAccumulate), lt::Accumulate<4>{}},
      lt::When{on(kHalf), lt::Autocast<lt::fp16>{}}, lt::When{on(kBfloat), lt::Autocast<lt::bf16>{}},
      lt::When{on(kAverage), lt::AverageWeights{.evaluate = true}},
      lt::When{on(kBackend), lt::BackendFlags{.deterministic = true}},
      lt::When{on(kFlush), lt::CacheFlushEvery<2>{}}, lt::When{on(kClipNorm), lt::ClipGradNorm{0.1}},
      lt::When{on(kClipValue), lt::ClipGradValue{0.01}},
      lt::When{on(kOn), lt::On{lt::kObserve, [](lt::WindowContext&) {}}},
      lt::When{on(kRestore), lt::RestoreBest{}}, lt::When{on(kSchedule), lt::ScheduleLr{.warmup_steps = 2}},
      lt::When{on(kProgress), lt::ShowProgress{.out = nowhere}},
      lt::When{on(kStop), lt::StopEarly{.metric = "validation.loss", .patience = 100}},
      lt::When{on(kUnfreeze), lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}}},
      lt::When{on(kValidate), lt::Validate{held_out}});
  Outcome outcome{net, {}};
  outcome.result = trainer.fit(data, {.epochs = (on(kStop) || on(kRestore)) && !on(kValidate) ? 1 : 2});
  std::fclose(nowhere);
  return outcome;
}

bool watches(int policy) { return std::find(kWatchers.begin(), kWatchers.end(), policy) != kWatchers.end(); }

}  // namespace

TEST_CASE("every pair of policies trains, and those that only watch leave every bit alone") {
  std::vector<Outcome> alone;
  for (int policy = 0; policy < kPolicies; ++policy) alone.push_back(trained(policy, policy));
  for (int a = 0; a < kPolicies; ++a)
    for (int b = a + 1; b < kPolicies; ++b) {
      INFO("policies " << a << " and " << b);
      if (a == kHalf && b == kBfloat) {
        CHECK_THROWS_AS(trained(a, b), lt::PolicyConflict);
        continue;
      }
      auto both = trained(a, b);
      CHECK(both.result.status == lt::FitStatus::completed);
      CHECK(both.result.skipped == 0);
      CHECK(std::isfinite(both.result.loss));
      CHECK_FALSE(toy::has_gradients(both.net));
      for (const auto& [watcher, other] : {std::pair{a, b}, std::pair{b, a}}) {
        const bool same_length = both.result.epochs == alone[static_cast<std::size_t>(other)].result.epochs;
        if (watches(watcher) && same_length)
          CHECK(toy::distance(both.net, alone[static_cast<std::size_t>(other)].net) == 0.0);
      }
    }
}
