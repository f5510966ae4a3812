// SPDX-License-Identifier: MIT
// A whole training run without policies, and its twin with one; see check.sh.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

double train(toy::Net net, const std::vector<toy::Batch>& batches) {
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-3});
#ifdef LOOPTORCH_TWIN
  lt::Trainer trainer(net, optimizer, toy::objective, lt::ClipGradNorm{1.0});
#else
  lt::Trainer trainer(net, optimizer, toy::objective);
#endif
  return trainer.fit(batches, {.epochs = 2}).loss;
}
