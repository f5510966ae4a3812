// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy has windows rerun, and an optimizer that takes a closure, such as
// LBFGS
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#include <torch/optim/lbfgs.h>

inline torch::optim::LBFGS lbfgs(net->parameters());
auto weighed = [](Net& net, const at::Tensor& batch) {
  return lt::Loss{.value = net(batch).mean(), .weight = 3};
};
#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, weighed, lt::RetryOnOom{});
#else
lt::Trainer trainer(net, lbfgs, weighed, lt::RetryOnOom{});
#endif

auto result = trainer.fit(data);
