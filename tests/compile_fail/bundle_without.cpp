// SPDX-License-Identifier: MIT
// expect: looptorch: without<P>() takes the policy P out of a bundle, and this one does not hold it.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

auto standard() { return lt::Policies{lt::Accumulate<4>{}, lt::When{true, lt::ClipGradNorm{1.0}}}; }

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, standard().without<lt::ClipGradNorm>(), lt::ClipGradNorm{5.0});
#else
lt::Trainer trainer(net, sgd, objective, standard().without<lt::ClipGradValue>(), lt::ClipGradNorm{5.0});
#endif
