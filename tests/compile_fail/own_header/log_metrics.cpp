// SPDX-License-Identifier: MIT
// anywhere: // looptorch: LogMetrics needs #include <looptorch/policies/log_metrics.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/log_metrics.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::LogMetrics{.folder = "log"});
