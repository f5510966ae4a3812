// SPDX-License-Identifier: MIT
// On puts a hook in place: its phase and its argument say when it runs.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

TEST_CASE(
    "On runs before or after the update by its phase, at a window's or an epoch's end by its argument") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<std::string> log;
  const auto note = [&](const char* what) {
    return [&log, what](lt::UpdateContext&) { log.push_back(what); };
  };
  lt::Trainer trainer(net, sgd, toy::objective,
                      lt::On{lt::kObserve, [&](lt::EpochContext&) { log.push_back("epoch"); }},
                      lt::On{lt::kObserve, [&](lt::WindowContext&) { log.push_back("window"); }},
                      lt::On{lt::kAverage, note("average")}, lt::On{lt::kUpdate, note("update")},
                      lt::On{lt::kCheck, note("check")}, lt::On{lt::kClip, note("clip")});
  trainer.fit(toy::batches(1));
  CHECK(log == std::vector<std::string>{"check", "clip", "update", "average", "window", "epoch"});
}
