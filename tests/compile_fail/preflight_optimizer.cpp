// SPDX-License-Identifier: MIT
// expect: looptorch: preflight and find_micro_batch undo their steps, and cannot save what this
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
torch::optim::SGD& optimizer = sgd;
#else
torch::optim::Optimizer& optimizer = sgd;
#endif
lt::Trainer trainer(net, optimizer, objective);
auto report = lt::preflight(trainer, data);
