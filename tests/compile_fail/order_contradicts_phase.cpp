// SPDX-License-Identifier: MIT
// expect: looptorch: two listed policies would each have to run before the other
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Noise {
#ifdef LOOPTORCH_TWIN
  static constexpr lt::Phase phase = lt::Phase::clip;
#else
  static constexpr lt::Phase phase = lt::Phase::update;
#endif
  using runs_before = lt::Before<lt::ClipGradNorm>;
  void before_update(lt::UpdateContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Noise{}, lt::When{true, lt::ClipGradNorm{1.0}});
