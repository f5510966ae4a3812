// SPDX-License-Identifier: MIT
// Every part of the state that a run saves is loaded: a Trainer that takes a snapshot over saves it again,
// value by value, for the loop and for all policies that have a state. No step is made in between, so a value
// that is not loaded shows, whatever it affects.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/skip_bad_windows.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/whole_run.hpp"

#include <cstdint>
#include <set>
#include <string>

namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;
using whole_run::Net, whole_run::Samples;

namespace {

/// Calls `use(trainer)` with a Trainer that lists what has a state.
template <class Use>
void with_trainer(const TemporaryFolder& folder, const Use& use) {
  at::set_num_threads(1);
  torch::manual_seed(7);
  Net net;
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
  const auto silent = [](const std::string&) {};
  std::int64_t calls = 0;
  const auto spiking = [&calls](Net& net, const whole_run::Batch& batch) {
    lt::Loss loss = whole_run::objective(net, batch);
    if (++calls == 46) loss.value = loss.value * 1e6;  // in the last epoch
    return loss;
  };
  lt::Trainer trainer(
      net, optimizer, spiking, lt::Accumulate<3>{},
      lt::Autocast<lt::fp16>{.initial_scale = 1 << 24, .growth_interval = 40},
      lt::ClipGradNorm{.max_norm = 0.5, .record = true},
      lt::On{lt::kClip, [](lt::UpdateContext& update) { update.veto(update.run.progress().step == 5); }},
      lt::ScheduleLr{.decay = lt::PlateauDecay{.metric = "validation.loss", .patience = 0, .cooldown = 2}},
      lt::AverageWeights{.rule = lt::Ema{.decay = 0.9}, .average_buffers = true},
      lt::UnfreezeAt({{.epoch = 1, .patterns = {"second.*"}}, {.epoch = 9, .patterns = {"norm.*"}}}),
      lt::Validate{lt::PinnedPrefetchLoader(Samples{10}, {.batch_size = 4}),
                   lt::ValidateOptions{.per_epoch = 4}},
      lt::StopEarly{.metric = "validation.loss", .patience = 100},
      lt::RestoreBest{.metric = "validation.loss"},
      lt::SkipBadWindows{.spikes = 20, .warm_up = 3, .report = silent},
      lt::Autopsy{.spikes = 30, .warm_up = 3, .report = silent}, lt::RetryOnOom{.report = silent},
      lt::SnapshotEvery{.folder = folder.path(), .best = "validation.loss", .on_signals = false});
  use(trainer);
}

lt::FitResult train(auto& trainer, std::int64_t max_steps) {
  return trainer.fit(
      lt::PinnedPrefetchLoader(Samples{50}, {.batch_size = 4, .workers = 1}, lt::RandomSampler{.seed = 3}),
      {.epochs = 4, .max_steps = max_steps});
}

/// Returns the numbers and tensors that are the same in both, by the ends of their keys.
std::set<std::string> same_numbers(const lt::StateDict& a, const lt::StateDict& b) {
  std::set<std::string> keys;
  for (const auto& [key, value] : a.values())
    if (const auto other = b.values().find(key); other != b.values().end() && !value.get_if<std::string>() &&
                                                 looptorch::testing::bits_equal(value, other->second))
      keys.insert(key.substr(key.rfind('.') + 1));
  return keys;
}

}  // namespace

TEST_CASE("what a run saves is loaded, value by value, and each value is one that a new run does not have") {
  TemporaryFolder folder, other;
  lt::SnapshotContents saved, begun;
  with_trainer(folder, [&](auto& trainer) {
    CHECK(train(trainer, 18).steps == 18);  // in the middle of the last epoch
    saved = whole_run::kept(trainer.snapshot());
  });
  lt::StateDict state;
  for (const auto& [key, value] : saved.state.values())  // that of the range is a fit's, not the Trainer's
    if (!key.starts_with("loader.") && key != "batch_size") state.set(key, value);
  saved.state = state;
  with_trainer(other, [&](auto& trainer) {
    begun = whole_run::kept(trainer.snapshot());
    trainer.restore(saved);
    CHECK(whole_run::difference(saved, whole_run::kept(trainer.snapshot())) == "");
  });
  // Options, numbers of things, and what only certain runs have: memory that ran out (retry_on_oom_test),
  // spikes that Autopsy looked into (autopsy_test), an end of the schedule (schedule_lr_test), an epoch
  // without progress.
  CHECK(same_numbers(saved.state.under("run"), begun.state.under("run")) ==
        std::set<std::string>{"0", "at_most", "calm", "end", "groups", "most_pieces", "pieces", "retries",
                              "size", "spikes", "updates", "waited", "windows"});
}
