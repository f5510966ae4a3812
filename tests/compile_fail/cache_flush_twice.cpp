// SPDX-License-Identifier: MIT
// expect: looptorch: a policy is listed twice, or in two forms. Keep one of them
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, lt::CacheFlushEvery<4>{});
#else
lt::Trainer trainer(net, sgd, objective, lt::CacheFlushEvery<4>{}, lt::CacheFlushEvery<>{5});
#endif
