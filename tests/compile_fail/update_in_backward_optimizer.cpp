// SPDX-License-Identifier: MIT
// expect: looptorch: UpdateInBackward needs an optimizer that can update one parameter alone
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
inline lt::FusedSGD optimizer(net->parameters());
#else
inline torch::optim::SGD optimizer(net->parameters(), 0.1);
#endif
lt::Trainer trainer(net, optimizer, objective, lt::UpdateInBackward{});
