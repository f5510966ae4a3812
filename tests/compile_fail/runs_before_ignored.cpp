// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `runs_before` or `runs_after` would be ignored.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Noise {
#ifdef LOOPTORCH_TWIN
  using runs_before = lt::Before<lt::ClipGradNorm>;
#else
  using runs_before = lt::ClipGradNorm;
#endif
  void before_update(lt::UpdateContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Noise{});
