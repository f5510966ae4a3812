// SPDX-License-Identifier: MIT
// The order of policies within a hook. It is a property of each policy, so that the order in which a user
// lists policies never matters.
#pragma once

namespace looptorch {

/// The stages of a window's end, in order. A policy names its own by `static constexpr Phase phase`; the
/// default is `observe`. Policies of one phase run in the order of their type names.
enum class Phase {
  unscale,   ///< gradients become true gradients (loss scaling is undone)
  clip,      ///< gradients are changed or measured
  update,    ///< the optimizer moves the parameters
  schedule,  ///< whether and how training goes on
  average,   ///< averages of the new parameters
  observe,   ///< reports, caches: nothing that training depends on
  snapshot,  ///< the state of all others is written to disk
  finish,    ///< the caller gets what it keeps after a fit, which no snapshot holds
};

/// A phase as a type, for `On`.
template <Phase P>
struct PhaseConstant {
  static constexpr Phase value = P;
};

inline constexpr PhaseConstant<Phase::unscale> kUnscale;
inline constexpr PhaseConstant<Phase::clip> kClip;
inline constexpr PhaseConstant<Phase::update> kUpdate;
inline constexpr PhaseConstant<Phase::schedule> kSchedule;
inline constexpr PhaseConstant<Phase::average> kAverage;
inline constexpr PhaseConstant<Phase::observe> kObserve;

}  // namespace looptorch
