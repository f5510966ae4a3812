// SPDX-License-Identifier: MIT
// expect: looptorch: an objective must return a looptorch::Loss or a 0-dim tensor.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
auto mine = [](Net& net, const at::Tensor& batch) { return net(batch).mean(); };
#else
auto mine = [](Net& net, const at::Tensor& batch) { return net(batch).mean().item<double>(); };
#endif
lt::Trainer trainer(net, sgd, mine);

auto result = trainer.fit(data);
