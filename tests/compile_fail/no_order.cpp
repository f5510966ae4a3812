// SPDX-License-Identifier: MIT
// expect: looptorch: two listed policies change gradients in one phase, and nothing says which comes first
// anywhere: ClipGradNorm
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Noise {
  static constexpr lt::Phase phase = lt::Phase::clip;
#ifdef LOOPTORCH_TWIN
  using runs_after = lt::After<lt::ClipGradNorm>;
#endif
  void before_update(lt::UpdateContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Noise{}, lt::ClipGradNorm{1.0});
