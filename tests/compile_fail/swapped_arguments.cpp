// SPDX-License-Identifier: MIT
// expect: looptorch: these are not a Trainer's arguments. Write Trainer(model, optimizer, objective,
// policies...)
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective);
#else
lt::Trainer trainer(sgd, net, objective);
#endif
