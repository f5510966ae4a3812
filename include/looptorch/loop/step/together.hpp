// SPDX-License-Identifier: MIT
// A fit on several ranks: joins them, lets those that do not lead write no reports and no snapshots, and
// tells the others when an exception ends the fit of one.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/step/window_state.hpp>

#include <exception>
#include <utility>

namespace looptorch::detail {

/// The ranks of one fit while it lives.
template <class Engine>
class JoinedRanks {
 public:
  explicit JoinedRanks(Engine& engine) : engine_(engine) {
    engine.join_ranks();
    if (!engine.ranks()) return;
    const bool redoes = engine.stack().any([]<class P>() { return pieces_hook::template valid<P>(); });
    const bool in_backward = engine.stack().any([]<class P>() { return updates_in_backward<P>(); });
    if (!Engine::kStreams && engine.ranks()->shards() > 0) {
      engine.leave_ranks();
      throw PolicyConflict(
          "DataParallel{.reproducible} sums the gradients of one update only, and this Trainer has several: "
          "switch it off");
    }
    if (redoes || in_backward) {
      engine.leave_ranks();
      throw PolicyConflict(message("on several ranks ",
                                   redoes ? "RetryOnOom would do a window again on one of them alone"
                                          : "UpdateInBackward would update before gradients are summed",
                                   ": list it or DataParallel, or switch one of them off by When"));
    }
    for (UpdateWork& work : engine.works()) work.weight.leave();
    engine.window().ranks_end = false;
  }
  ~JoinedRanks() {
    if (engine_.ranks() && !engine_.ranks()->leads()) engine_.stack().mute(false);
    engine_.leave_ranks();
  }
  JoinedRanks(const JoinedRanks&) = delete;
  JoinedRanks& operator=(const JoinedRanks&) = delete;

 private:
  Engine& engine_;
};

/// Calls `body`, a whole fit, on the ranks that the policies give; without such a policy, just calls it.
template <class Engine, class Body>
decltype(auto) together([[maybe_unused]] Engine& engine, Body&& body) {
  if constexpr (Engine::kHasRanks) {
    const JoinedRanks<Engine> joined(engine);
    const auto tell = [&](const char* what) {
      if (engine.ranks()) engine.ranks()->report_failure(what, engine.progress().step);
    };
    try {
      return body();
    } catch (const std::exception& error) {
      tell(error.what());
      throw;
    } catch (...) {
      tell("an exception");
      throw;
    }
  } else {
    return body();
  }
}

}  // namespace looptorch::detail
