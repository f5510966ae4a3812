// SPDX-License-Identifier: MIT
// expect: looptorch: an objective does not take these batches. It is called as objective(Model&, const
// Batch&)
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::Trainer trainer(net, sgd, objective);

#ifdef LOOPTORCH_TWIN
auto result = trainer.fit(data);
#else
auto result = trainer.fit(std::vector<std::string>{});
#endif
