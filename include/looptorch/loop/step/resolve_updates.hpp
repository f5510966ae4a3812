// SPDX-License-Identifier: MIT
// Finds out which past updates were applied and which were skipped, and counts them. On a device the answer
// exists only once the kernels have run, so the host reads it as late as it can: just before the next update.
// On a CPU it is known at once; the code is the same.
#pragma once

#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/window_state.hpp>

#include <cstddef>
#include <exception>
#include <utility>

namespace looptorch::detail {

/// Shows policies `then` as the run's progress while it lives.
class ProgressScope {
 public:
  ProgressScope(Progress& shown, Progress then)
      : shown_(shown), now_(std::exchange(shown, std::move(then))) {}
  ~ProgressScope() { shown_ = now_; }
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  Progress& shown_;
  Progress now_;
};

/// Counts update I, and runs after_update if it was applied; hooks see the progress as it was `then`. Returns
/// a hook's exception instead of throwing: the window must still be counted.
template <std::size_t I, class Engine>
[[nodiscard]] std::exception_ptr resolve_outcome(Engine& engine, bool applied, Progress then) {
  Run& run = engine.run();
  UpdateView& view = run.updates()[I];
  UpdateWork& work = engine.works()[I];
  WindowLosses::resolve(view, applied);
  if (applied) {
    ++view.applied;
    const ProgressScope as_then(RunAccess::progress(run), std::move(then));
    auto context = UpdateContext::of_applied(run, I, work.gradients);
    return engine.stack().template run_all<after_update_hook>(context);
  }
  ++view.skipped;
  work.skipped += then.step == run.progress().step;
  const bool first = std::exchange(engine.window().last_skipped, then.step) != then.step;
  RunAccess::progress(run).skipped += first;
  return nullptr;
}

/// Resolves update I if its verdict is unread. An exception of the window under way waits for the window's
/// end; one of an earlier window goes to `earlier`.
template <std::size_t I, class Engine>
void resolve_update(Engine& engine, std::exception_ptr& earlier) {
  engine.works()[I].verdict.read_update([&](bool applied, Progress then) {
    const bool of_this_window = then.step == engine.progress().step;
    std::exception_ptr& thrown = of_this_window ? engine.window().thrown : earlier;
    keep_first(thrown, resolve_outcome<I>(engine, applied, std::move(then)));
  });
}

/// Waits for the device's outcomes of updates so far, and counts them. Throws NonFiniteLoss and
/// NonFiniteGradient for windows before the one under way, and what hooks threw for their updates.
template <class Engine>
void resolve_updates(Engine& engine) {
  std::exception_ptr first, thrown;
  for_each_index<Engine::kUpdates>([&](auto i) { resolve_update<i>(engine, thrown); });
  for_each_index<Engine::kUpdates>([&](auto i) {
    Verdict& verdict = engine.works()[i].verdict;
    if (verdict.step() == engine.progress().step) return;  // its window is not counted yet
    keep_first(first, verdict.take_error(engine.run().updates()[i].name,
                                         [&] { return all_finite(engine.parameters().all()); }));
  });
  keep_first(first, thrown);
  if (first) std::rethrow_exception(first);
}

/// True if a policy that is on must have `after_update` called before the next window begins.
template <class Engine>
bool resolves_at_once(Engine& engine) {
  return engine.stack().any_enabled(
      []<class P>() { return after_update_hook::template valid<P>() && !async_after_update<P>(); });
}

/// Throws errors of the last window that the host already knows, before another batch is computed.
template <class Engine>
void throw_known_errors(Engine& engine) {
  bool known = false;
  for (const UpdateWork& work : engine.works()) known |= work.verdict.knows_error();
  if (known) resolve_updates(engine);
}

/// Drops what the host knows of bad losses and gradients, so that it is not thrown later.
template <class Engine>
void clear_known_errors(Engine& engine) {
  for (UpdateWork& work : engine.works())
    if (work.verdict.knows_error()) work.verdict.drop_errors();
}

/// Throws what `after_update` hooks threw in the window that has ended.
template <class Engine>
void rethrow_from_hooks(Engine& engine) {
  if (!engine.window().thrown) return;
  clear_known_errors(engine);  // this exception is the one to report
  std::rethrow_exception(std::exchange(engine.window().thrown, nullptr));
}

}  // namespace looptorch::detail
