// SPDX-License-Identifier: MIT
// expect: looptorch: a policy is listed twice, or in two forms. Keep one of them, or switch them by
// When{flag, policy}.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, lt::When{true, lt::Autocast<lt::fp16>{}},
                    lt::When{false, lt::Autocast<lt::bf16>{}});
#else
lt::Trainer trainer(net, sgd, objective, lt::Autocast<lt::fp16>{}, lt::Autocast<lt::bf16>{});
#endif
