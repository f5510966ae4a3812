// SPDX-License-Identifier: MIT
// expect: looptorch: a snapshot cannot hold what this optimizer keeps. Hold it by its own type
#include <looptorch/policies/snapshot_every.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
torch::optim::SGD& optimizer = sgd;
#else
torch::optim::Optimizer& optimizer = sgd;
#endif
lt::Trainer trainer(net, optimizer, objective, lt::SnapshotEvery{.folder = "runs"});
