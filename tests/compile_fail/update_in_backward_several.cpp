// SPDX-License-Identifier: MIT
// expect: looptorch: UpdateInBackward applies the gradients of one update, and several are listed
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

inline lt::FusedSGD optimizer(net->parameters());
#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, lt::Update{optimizer, objective}, lt::UpdateInBackward{});
#else
lt::Trainer trainer(net, lt::Update{optimizer, objective}, lt::Update{optimizer, objective},
                    lt::UpdateInBackward{});
#endif
