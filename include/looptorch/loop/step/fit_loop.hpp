// SPDX-License-Identifier: MIT
// Runs a fit: begins the policies, runs epochs of windows, and ends the policies. Read this header first.
// `Trainer::fit` (loop.hpp) calls `fit`, at the end of this file; window.hpp has the next level.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/data/loader/feed.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/fit_events.hpp>
#include <looptorch/loop/step/resolve_updates.hpp>
#include <looptorch/loop/step/window.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// Reports, once per Trainer and on one rank, that a fit had nothing to do.
template <class Engine>
void warn_of_first_idle_fit(Engine& engine, const FitPlan& plan) {
  if (engine.ranks().leads() && engine.takes_warning_of_idle_fit())
    TORCH_WARN("looptorch: ", plan.idle_text(engine.progress()));
}

/// The epochs of one fit.
template <class Engine, class Range>
class FitLoop {
 public:
  using Batch = typename BatchRange<Range>::Batch;

  /// `from_start`: the range begins at the first batch of the epoch under way, as a single-pass range does
  /// after another process began its epoch.
  FitLoop(Engine& engine, const BatchRange<Range>& batches, const FitPlan& plan, bool from_start)
      : engine_(engine), batches_(batches), plan_(plan), from_start_(from_start) {
    engine.window().in_epoch = true;
    engine.window().end = WindowEnd::counted;
    engine.window().pinned = batches.pinned;
    engine.window().refills = batches.refills;
  }

  void run() {
    if (at_last_batch()) run_epoch();  // only the epoch's end is missing
    while (!ends()) run_epoch();
    resolve_updates(engine_);
    engine_.ranks().reduce_end(engine_);
    Run& run = engine_.run();
    if (plan_.at_its_length(run) && !run.stop_reason() && run.signal() == 0) RunAccess::forget_stop(run);
  }

  /// True if the batches of the epoch are through.
  [[nodiscard]] bool at_last_batch() const { return plan_.at_last_batch(progress()); }

  /// True between windows if the loader, whose next batch is `number`, skipped the whole next window.
  [[nodiscard]] bool skips_whole_window(std::int64_t number) {
    return engine_.window().micro_batches == 0 && number >= progress().batch + engine_.window_length();
  }
  /// Takes part in a window for which this rank has no batch, because its loader `skipped` them or its epoch
  /// is over. Returns false if the window does not count, or if the fit ends with it.
  [[nodiscard]] bool join_empty_window(bool skipped) {
    if (skipped) engine_.window().skipped_batches = engine_.window_length();
    plan_.count_on_step(RunAccess::progress(engine_.run()));
    begin_window(engine_);
    end_window(engine_, kept_);
    return after_window();
  }
  /// True if an empty window did not count because the epoch is over on all ranks.
  [[nodiscard]] bool ends_at_epoch() const { return engine_.window().end == WindowEnd::epoch_over; }
  /// Joins the next window of other ranks, which ends their fit too.
  void join_final_window() {
    begin_window(engine_);
    window_kind_t<Engine>::complete(engine_, kept_);
    (void)engine_.ranks().reduce_window(engine_);
    abandon_window(engine_);
  }

 private:
  [[nodiscard]] const Progress& progress() const { return engine_.progress(); }

  /// Continues the epoch under way, and ends it unless the fit ends first.
  void run_epoch() {
    if (progress().batch == 0) begin_epoch();
    auto position = waiting([&] {
      return batches_.begin_at(progress().epoch, progress().batch, std::exchange(from_start_, false));
    });
    const auto last = batches_.end();
    const auto has_batch = [&] { return position != last && !is_skipped(position); };
    const auto next = [&] { return ++position, has_batch(); };
    for (bool more = has_batch(); more; more = waiting(next)) {
      if (const auto number = batches_.number_at(position); number && !skip_to(*number)) return;
      const auto& indices = batches_.indices_at(position);
      plan_.count_on_step(RunAccess::progress(engine_.run()));
      if (!add_and_end_if_last(engine_, kept_, batch_at(position), indices)) continue;
      if (!after_window()) return;
    }
    if (engine_.window().micro_batches > 0) {  // a shorter last window is a window like any other
      if (const auto size = plan_.batches(); size && batches_.numbered) leave_gap_to(end_of_last(*size));
      end_window(engine_, kept_);
      if (!after_window()) return;
    }
    if (!engine_.ranks().join_remaining_windows(*this)) return;
    end_epoch();
  }

  /// True if the batch at `position` exceeds a rehearsal's limit.
  template <class Position>
  [[nodiscard]] bool is_skipped(const Position& position) const {
    const std::int64_t next = progress().batch + engine_.window().micro_batches;
    return plan_.skips(batches_.number_at(position).value_or(next));
  }

  /// Returns what `fetch` returns, and counts its time as waiting for data.
  template <class Fetch>
  decltype(auto) waiting(const Fetch& fetch) {
    return engine_.in_phase(RunPhase::data, "data wait", fetch);
  }
  template <class Position>
  decltype(auto) batch_at(Position& position) {
    if constexpr (std::is_reference_v<decltype(*position)>)
      return *position;
    else
      return waiting([&] { return *position; });
  }

  void begin_epoch() {
    restart_means(engine_.run());
    EpochContext context{engine_.run()};
    engine_.stack().template run<on_epoch_begin_hook>(context);
  }

  /// Counts batches before `number` that a loader skipped as part of their windows, so unreadable samples do
  /// not shift the samples of later windows. Ends a window whose last batches were skipped. Returns false
  /// if the fit ends with that window.
  bool skip_to(std::int64_t number) {
    const std::int64_t length = engine_.window_length();
    if (engine_.window().micro_batches > 0 && number >= progress().batch + length) {
      leave_gap_to(progress().batch + length);
      end_window(engine_, kept_);
      if (!after_window()) return false;
    }
    if (!engine_.ranks().join_skipped_windows(*this, number)) return false;
    if (engine_.window().micro_batches == 0)  // windows of which no batch is left are no steps
      RunAccess::progress(engine_.run()).batch += (number - progress().batch) / length * length;
    leave_gap_to(number);
    return true;
  }
  /// Returns where the last window with a batch of this rank ends in an epoch of `size` batches. Other ranks
  /// may have batches in windows after it.
  [[nodiscard]] std::int64_t end_of_last(std::int64_t size) const {
    return engine_.ranks() ? std::min(size, progress().batch + engine_.window_length()) : size;
  }
  /// Counts as skipped the window's batches before `number` that the loader has not yielded.
  void leave_gap_to(std::int64_t number) {
    WindowState& window = engine_.window();
    window.skipped_batches = number - progress().batch - window.micro_batches;
  }

  /// Finishes the window that has ended. Returns false if the fit ends with it, in mid-epoch.
  bool after_window() {
    const WindowEnd end = engine_.window().end;
    if (end == WindowEnd::counted) {
      plan_.limit_time(engine_.run());
      close_window(engine_);
    } else if (end != WindowEnd::skipped) {
      return false;
    }
    return at_last_batch() || !ends();
  }

  [[nodiscard]] bool ends() { return engine_.ranks().ends_fit(engine_, *this, plan_); }

  /// Throws UsageError for an epoch without batches.
  void end_epoch() {
    if (progress().batch == 0)
      throw UsageError("the range of batches is empty: there is nothing to train on");
    resolve_updates(engine_);
    plan_.end_epoch(RunAccess::progress(engine_.run()));
    engine_.with_loss_scale([&](auto& scale) { scale.require_enough(progress()); });
    EpochContext context{engine_.run()};
    engine_.stack().template run<on_epoch_end_hook>(context);
  }

  Engine& engine_;
  const BatchRange<Range>& batches_;
  const FitPlan& plan_;
  bool from_start_;
  kept_t<Engine, Batch> kept_;  // the window's batches, if needed later
};

/// Loads the snapshot that the options name; returns nothing without one. `last` describes the previous fit's
/// range, and then this one's.
template <bool kTakesSnapshots, class Engine, class Batches>
auto resume(Engine& engine, const FitOptions& options, const Batches& batches,
            [[maybe_unused]] LastFeed<kTakesSnapshots, Engine>& last) {
  if constexpr (kTakesSnapshots) {
    return SnapshotCode<Engine>::resume(engine, options, batches.feed(), last);
  } else {
    require_no_resume(options);
    // Another Trainer, which took snapshots, may have left this loader regrouped.
    if (auto* const source = batches.regroupable()) source->regroup(std::nullopt);
    return std::optional<NotResumed>();
  }
}

/// Gives policies the source of a fit's batches while it lives.
class FeedScope {
 public:
  FeedScope(Run& run, Feed feed) : run_(run) { RunAccess::feed(run, std::move(feed)); }
  ~FeedScope() { RunAccess::feed(run_, {}); }
  FeedScope(const FeedScope&) = delete;
  FeedScope& operator=(const FeedScope&) = delete;

 private:
  Run& run_;
};

/// Runs a whole fit: policies begin, epochs pass, policies end, even after an exception. `Host` serves
/// policies that call their Trainer.
template <class Host, class Trainer, class Engine, class Range>
FitResult fit_on_this_process(Trainer& trainer, Engine& engine, Range& range, const FitOptions& options,
                              LastFeed<Host::takes_snapshots, Engine>& last) {
  resolve_updates(engine);  // counts updates left over from a loop of `step`, before policies begin anew
  Run& run = engine.run();
  const Progress before = run.progress();
  const Stopwatch clock;
  BatchRange<Range> batches(range);
  std::optional<std::int64_t> size = engine.ranks().plan_epochs(engine, batches, options);
  engine.prepare();
  const auto resumed = resume<Host::takes_snapshots>(engine, options, batches, last);
  // A regrouped loader has another number of batches: ranks agree again.
  if (batches.regroupable() && batches.regroupable()->regrouping())
    size = engine.ranks().plan_epochs(engine, batches, options);
  engine.ranks().mute(engine);  // after the comparison of policies
  const FitPlan plan(options, run.progress(), batches.repeatable, size, engine.window_length(), clock);
  announce(engine, plan);
  if (!resumed) warn_of_another_range(engine, before);
  RunAccess::batch_limit(run) = options.limit_batches;
  const FeedScope fed(run, batches.feed());
  std::optional<Host> host;
  try {
    guarded(engine, [&] {
      begin_policies(engine);
      if (resumed) resumed->begin(run);
      engine.ranks().share_awaited_metrics(engine);
      host.emplace(trainer, run);
      ready_policies(engine);
      engine.ranks().fix_units(engine);
      if (resumed && options.on_resumed) options.on_resumed(resumed->report());
      FitLoop<Engine, Range>(engine, batches, plan, /*from_start=*/resumed.has_value()).run();
    });
  } catch (...) {
    ignoring_errors([&] { resolve_updates(engine); });
    ignoring_errors([&] { end_policies(engine, FitStatus::failed); });
    throw;
  }
  const FitStatus status = plan.status(run, before);
  end_policies(engine, status, plan.began_beyond());
  if (status == FitStatus::nothing_left) warn_of_first_idle_fit(engine, plan);
  FitResult result = fit_result(run, status, clock);
  if (resumed) result.resumed = resumed->report();
  result.skipped_samples = batches.skipped();
  engine.ranks().gather_skipped(result.skipped_samples);
  return result;
}

/// Runs a whole fit, on all ranks if a policy gives some.
template <class Host, class Trainer, class Engine, class Range>
FitResult fit(Trainer& trainer, Engine& engine, Range& range, const FitOptions& options,
              LastFeed<Host::takes_snapshots, Engine>& last) {
  return engine.ranks().run(engine,
                            [&] { return fit_on_this_process<Host>(trainer, engine, range, options, last); });
}

}  // namespace looptorch::detail
