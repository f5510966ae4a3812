// SPDX-License-Identifier: MIT
// Calls a callable as a hook, for work too small for a policy of its own. The callable's parameter selects
// the hook:
//   On{kClip, [](UpdateContext& update) {...}}      before an update: kPrepare, kCheck, kClip, kUpdate
//   On{kObserve, [](UpdateContext& update) {...}}   after an update: kEvaluate, kSchedule, kAverage, kObserve
//   On{kObserve, [](WindowContext& window) {...}}   at the end of a window
//   On{kObserve, [](EpochContext& epoch) {...}}     at the end of an epoch
// The phase (kClip, kObserve) decides when the callable runs among other policies.
#pragma once

#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/declared.hpp>

#include <type_traits>
#include <utility>

namespace looptorch {

struct CacheFlushFamily;
struct ClipGradNorm;
struct ClipGradValue;
struct DataParallel;
struct RetryOnOom;
struct ScheduleLr;
struct ShowProgress;
struct StopEarly;
struct WatchMemory;
struct WatchRounding;
template <class Module>
struct BasicAverageWeights;
template <class Batches, class Measure>
class Validate;

/// The family of all `On`. They run as listed.
struct OnFamily {};

namespace detail {

/// The place of `On` among the library's policies of its phase.
template <Phase At>
struct OnOrder {
  using before = Before<>;
  using after = After<>;
};
template <>
struct OnOrder<Phase::prepare> {
  using before = Before<>;
  using after = After<DataParallel, ScheduleLr>;
};
template <>
struct OnOrder<Phase::check> {
  using before = Before<Autopsy>;
  using after = After<>;
};
template <>
struct OnOrder<Phase::clip> {
  using before = Before<>;
  using after = After<ClipGradNorm, ClipGradValue>;
};
template <>
struct OnOrder<Phase::evaluate> {
  using before = Before<>;
  using after = After<Every<Validate>>;
};
template <>
struct OnOrder<Phase::schedule> {
  using before = Before<StopEarly>;
  using after = After<>;
};
template <>
struct OnOrder<Phase::average> {
  using before = Before<>;
  using after = After<Every<BasicAverageWeights>>;
};
template <>
struct OnOrder<Phase::observe> {
  using before = Before<LogMetrics, RetryOnOom, ShowProgress, SkipBadWindows, WatchMemory, WatchRounding>;
  using after = After<CacheFlushFamily>;
};

enum class OnHook { none, before_update, after_update, window_end, epoch_end };

template <Phase At, class F>
constexpr OnHook on_hook() {
  constexpr bool update = std::is_invocable_v<F&, UpdateContext&>;
  constexpr bool window = std::is_invocable_v<F&, WindowContext&>;
  constexpr bool epoch = std::is_invocable_v<F&, EpochContext&>;
  if constexpr (update + window + epoch != 1) return OnHook::none;
  if constexpr (window) return OnHook::window_end;
  if constexpr (epoch) return OnHook::epoch_end;
  return At <= Phase::update ? OnHook::before_update : OnHook::after_update;
}

template <OnHook Hook, class F>
struct OnBase {  // base of a callable that fits no hook, or several
  void on_window_end(WindowContext&) const {}
  mutable F callable;
};
template <class F>
struct OnBase<OnHook::before_update, F> {
  void before_update(UpdateContext& context) const { callable(context); }
  mutable F callable;
};
template <class F>
struct OnBase<OnHook::after_update, F> {
  void after_update(UpdateContext& context) const { callable(context); }
  mutable F callable;
};
template <class F>
struct OnBase<OnHook::window_end, F> {
  void on_window_end(WindowContext& context) const { callable(context); }
  mutable F callable;
};
template <class F>
struct OnBase<OnHook::epoch_end, F> {
  void on_epoch_end(EpochContext& context) const { callable(context); }
  mutable F callable;
};

}  // namespace detail

/// Calls `callable` in phase `At`; in `clip`, after the library's own clipping. Any number may be listed;
/// those of one phase run as listed.
template <Phase At, class F>
struct On : detail::OnBase<detail::on_hook<At, F>(), F> {
  static_assert(detail::on_hook<At, F>() != detail::OnHook::none,
                "looptorch: On needs a callable that takes one of UpdateContext&, WindowContext& and "
                "EpochContext&, and only one. Spell the parameter's type. See docs/errors.md#on");
  On(PhaseConstant<At>, F hook) : detail::OnBase<detail::on_hook<At, F>(), F>{std::move(hook)} {}
  static constexpr Phase phase = At;
  static constexpr bool leader_only = At >= Phase::observe;
  static constexpr bool repeatable = true;
  using family = OnFamily;
  using runs_before = typename detail::OnOrder<At>::before;
  using runs_after = typename detail::OnOrder<At>::after;
};
template <Phase At, class F>
On(PhaseConstant<At>, F) -> On<At, F>;

}  // namespace looptorch
