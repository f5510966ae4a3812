// SPDX-License-Identifier: MIT
// expect: looptorch: an optimizer that takes a closure, such as LBFGS, evaluates its gradients several times
// an update
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#include <torch/optim/lbfgs.h>

inline torch::optim::LBFGS lbfgs(net->parameters());
#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, lbfgs, objective, lt::Autocast<lt::bf16>{});
#else
lt::Trainer trainer(net, lbfgs, objective, lt::Autocast<lt::fp16>{});
#endif
