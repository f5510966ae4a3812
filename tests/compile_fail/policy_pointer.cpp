// SPDX-License-Identifier: MIT
// expect: looptorch: a policy is listed that is a pointer, a reference or no class. List a value
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::ClipGradNorm clip{1.0};

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, clip);
#else
lt::Trainer trainer(net, sgd, objective, &clip);
#endif
