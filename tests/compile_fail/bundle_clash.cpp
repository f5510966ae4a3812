// SPDX-License-Identifier: MIT
// expect: looptorch: a policy is listed twice, or in two forms. Keep one of them
// anywhere: Policies<looptorch::Accumulate<4>, looptorch::ClipGradNorm>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, lt::Policies{lt::Accumulate<4>{}, lt::ClipGradNorm{1.0}});
#else
lt::Trainer trainer(net, sgd, objective, lt::Policies{lt::Accumulate<4>{}, lt::ClipGradNorm{1.0}},
                    lt::Accumulate<8>{});
#endif
