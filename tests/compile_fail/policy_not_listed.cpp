// SPDX-License-Identifier: MIT
// expect: looptorch: policy<P>() reads the state of a listed policy, and this one is not listed or has none.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{1.0});

#ifdef LOOPTORCH_TWIN
auto& state = trainer.policy<lt::ClipGradNorm>();
#else
auto& state = trainer.policy<lt::ScheduleLr>();
#endif
