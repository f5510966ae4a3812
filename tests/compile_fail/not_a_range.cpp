// SPDX-License-Identifier: MIT
// expect: looptorch: fit and evaluate need a range of batches
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::Trainer trainer(net, sgd, objective);

#ifdef LOOPTORCH_TWIN
auto result = trainer.fit(data);
#else
auto result = trainer.fit(3);
#endif
