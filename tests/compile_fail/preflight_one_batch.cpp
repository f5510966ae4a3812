// SPDX-License-Identifier: MIT
// expect: looptorch: preflight and find_micro_batch need a range of batches, or SampleBatches of a dataset.
// Give them anywhere: a single batch as std::vector{batch}
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

lt::Trainer trainer(net, sgd, objective);

#ifdef LOOPTORCH_TWIN
auto report = lt::preflight(trainer, std::vector{data.front()});
#else
auto report = lt::preflight(trainer, data.front());
#endif
