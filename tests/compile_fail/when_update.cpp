// SPDX-License-Identifier: MIT
// expect: looptorch: When switches policies, not updates.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, lt::Update{sgd, objective}, lt::Update{sgd, objective});
#else
lt::Trainer trainer(net, lt::Update{sgd, objective}, lt::When{true, lt::Update{sgd, objective}});
#endif
