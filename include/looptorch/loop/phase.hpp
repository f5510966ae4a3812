// SPDX-License-Identifier: MIT
// Defines the phases of a step, by which policies are ordered within a hook. A policy declares its phase and,
// within that phase, which policies it runs before or after. Policies without such a declaration run in the
// order of the list.
#pragma once

namespace looptorch {

/// The stages of a step, in order. A policy names its own by `static constexpr Phase phase`; the default is
/// `observe`.
enum class Phase {
  prepare,   ///< sets what the step depends on: ranks, learning rates, which parameters are trained
  check,     ///< looks at the gradients before anything changes them
  clip,      ///< clips, measures or otherwise changes gradients
  update,    ///< the optimizer moves the parameters; `before_update` sees the gradients that it will use
  evaluate,  ///< measures held-out data, and publishes metrics
  schedule,  ///< whether and how training continues
  average,   ///< averages of the new parameters
  observe,   ///< reports, caches: nothing that training depends on
  snapshot,  ///< writes the state of all others to disk
  finish,    ///< sets what the caller keeps after a fit, which no snapshot holds
};

/// A policy's declaration that it runs before others of its phase, in each hook: `using runs_before =
/// looptorch::Before<ClipGradNorm, ClipGradValue>;`. Each entry is a policy, a family such as AutocastFamily,
/// or `Every<Template>`. Entries may be only forward-declared.
template <class... Others>
struct Before {};

/// A policy's declaration that it runs after others of its phase, in each hook: `using runs_after =
/// looptorch::After<ClipGradNorm>;`.
template <class... Others>
struct After {};

/// All policies of a template, such as `Every<Validate>`. It takes templates whose parameters are types.
template <template <class...> class Template>
struct Every {};

/// A phase as a type, for `On`.
template <Phase P>
struct PhaseConstant {
  static constexpr Phase value = P;
};

inline constexpr PhaseConstant<Phase::prepare> kPrepare;
inline constexpr PhaseConstant<Phase::check> kCheck;
inline constexpr PhaseConstant<Phase::clip> kClip;
inline constexpr PhaseConstant<Phase::update> kUpdate;
inline constexpr PhaseConstant<Phase::evaluate> kEvaluate;
inline constexpr PhaseConstant<Phase::schedule> kSchedule;
inline constexpr PhaseConstant<Phase::average> kAverage;
inline constexpr PhaseConstant<Phase::observe> kObserve;

}  // namespace looptorch
