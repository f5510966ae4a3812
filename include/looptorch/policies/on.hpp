// SPDX-License-Identifier: MIT
// Puts a hook in place, for work too small for a policy of its own. The callable's parameter selects the
// hook:
//   On{kClip, [](UpdateContext& update) {...}}      before an update: kUnscale, kClip, kUpdate
//   On{kObserve, [](UpdateContext& update) {...}}   after it: kSchedule, kAverage, kObserve
//   On{kObserve, [](WindowContext& window) {...}}   at the end of a window; EpochContext&: of an epoch
// The phase decides when it runs among other policies.
#pragma once

#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>

#include <type_traits>
#include <utility>

namespace looptorch {
namespace detail {

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

/// Calls `callable` in phase `At`. Any number may be listed.
template <Phase At, class F>
struct On : detail::OnBase<detail::on_hook<At, F>(), F> {
  static_assert(detail::on_hook<At, F>() != detail::OnHook::none,
                "looptorch: On needs a callable that takes one of UpdateContext&, WindowContext& and "
                "EpochContext&, and only one. Spell the parameter's type. See docs/errors.md#on");
  On(PhaseConstant<At>, F hook) : detail::OnBase<detail::on_hook<At, F>(), F>{std::move(hook)} {}
  static constexpr Phase phase = At;
  static constexpr bool only_reports = At >= Phase::observe;
  static constexpr bool repeatable = true;
};
template <Phase At, class F>
On(PhaseConstant<At>, F) -> On<At, F>;

}  // namespace looptorch
