// SPDX-License-Identifier: MIT
// Says what a resumed run may have in another way than the run that wrote the snapshot. A policy declares it
// of itself; all else stands in the table of resume/differences.hpp.
#pragma once

namespace looptorch {

/// How a resumed fit treats a difference from its snapshot. A policy names its own by `static constexpr
/// ResumeRule resume_rule`: what becomes of a run that adds the policy, leaves it out or cannot load its
/// state. The default is `never` for a policy that changes what is learnt, and `always` for the others.
enum class ResumeRule {
  never,       ///< refused: the run would be another
  on_request,  ///< refused, unless FitOptions::resume_changed asks for it
  always,      ///< goes on: memory or time differ, what is learnt does not
};

}  // namespace looptorch
