// SPDX-License-Identifier: MIT
// anywhere: // looptorch: CaptureGraphs needs #include <looptorch/policies/capture_graphs.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/capture_graphs.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::CaptureGraphs{.warmup = 3});
