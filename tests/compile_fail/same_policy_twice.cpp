// SPDX-License-Identifier: MIT
// expect: looptorch: a policy is listed twice, or in two forms. Keep one of them
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{1.0});
#else
lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{1.0}, lt::ClipGradNorm{2.0});
#endif
