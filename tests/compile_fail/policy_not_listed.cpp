// SPDX-License-Identifier: MIT
// expect: looptorch: policy<P>() names a policy that this Trainer does not list.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{1.0});

#ifdef LOOPTORCH_TWIN
auto& state = trainer.policy<lt::ClipGradNorm>();
#else
auto& state = trainer.policy<lt::ScheduleLr>();
#endif
