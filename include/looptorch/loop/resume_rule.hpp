// SPDX-License-Identifier: MIT
// Defines ResumeRule: what a resumed run does about a policy that was added or removed since the snapshot, or
// that cannot load its state. A policy may declare its own rule; the default depends on whether the policy
// changes what is learnt. resume/differences.hpp has the rules for model, optimizers and data.
#pragma once

namespace looptorch {

/// How a resumed fit treats a policy that was added or removed, or cannot load its state. A policy sets it by
/// `static constexpr ResumeRule resume_rule`. The default is `never` for a policy that changes what is
/// learnt, and `always` for the others.
enum class ResumeRule {
  never,       ///< refused: the run would be another
  on_request,  ///< refused, unless FitOptions::resume_changed asks for it
  always,      ///< resumes: memory or time differ, what is learnt does not
};

}  // namespace looptorch
