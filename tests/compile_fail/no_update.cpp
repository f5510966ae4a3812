// SPDX-License-Identifier: MIT
// expect: looptorch: a Trainer needs an update: an optimizer with an objective.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer<Net, lt::Update<torch::optim::SGD, decltype(&objective)>> trainer(net, sgd, &objective);
#else
lt::Trainer<Net, lt::Accumulate<2>> trainer(net, lt::Accumulate<2>{});
#endif
