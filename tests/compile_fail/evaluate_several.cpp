// SPDX-License-Identifier: MIT
// expect: looptorch: a Trainer with several updates has several objectives. Say what to measure
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::Trainer trainer(net, lt::Update{sgd, objective}, lt::Update{sgd, objective});

#ifdef LOOPTORCH_TWIN
auto result = trainer.evaluate(data, objective);
#else
auto result = trainer.evaluate(data);
#endif
