// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy splits batches, and an objective returns no weight, by which pieces add
// up.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
auto mine = [](Net& net, const at::Tensor& batch) {
  return lt::Loss{.value = net(batch).mean(), .weight = 3};
};
#else
auto mine = [](Net& net, const at::Tensor& batch) { return net(batch).mean(); };
#endif
lt::Trainer trainer(net, sgd, mine, lt::RetryOnOom{});

auto result = trainer.fit(data);
