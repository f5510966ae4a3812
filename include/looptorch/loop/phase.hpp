// SPDX-License-Identifier: MIT
// The order of policies within a hook. A policy declares it: its phase, and within a phase which policies it
// runs before or after. Policies without an order between them run as they are listed; names play no part.
#pragma once

namespace looptorch {

/// The stages of a step, in order. A policy names its own by `static constexpr Phase phase`; the default is
/// `observe`.
enum class Phase {
  prepare,   ///< what the step goes by is set: ranks, learning rates, which parameters are trained
  unscale,   ///< gradients, whose loss scale is undone by now, are checked
  clip,      ///< gradients are clipped, measured or changed in other ways
  update,    ///< the optimizer moves the parameters; `before_update` sees the gradients that it will use
  evaluate,  ///< held-out data is measured, and metrics are published
  schedule,  ///< whether and how training goes on
  average,   ///< averages of the new parameters
  observe,   ///< reports, caches: nothing that training depends on
  snapshot,  ///< the state of all others is written to disk
  finish,    ///< the caller gets what it keeps after a fit, which no snapshot holds
};

/// A policy's declaration that it runs before others of its phase, in each hook:
/// `using runs_before = looptorch::Before<ClipGradNorm, ClipGradValue>;`. Each entry is a policy, a family
/// such as AutocastFamily, or `Every<Template>`. A forward declaration of it is enough.
template <class... Others>
struct Before {};

/// The same for policies that it runs after: `using runs_after = looptorch::After<ClipGradNorm>;`.
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
inline constexpr PhaseConstant<Phase::unscale> kUnscale;
inline constexpr PhaseConstant<Phase::clip> kClip;
inline constexpr PhaseConstant<Phase::update> kUpdate;
inline constexpr PhaseConstant<Phase::evaluate> kEvaluate;
inline constexpr PhaseConstant<Phase::schedule> kSchedule;
inline constexpr PhaseConstant<Phase::average> kAverage;
inline constexpr PhaseConstant<Phase::observe> kObserve;

}  // namespace looptorch
