// SPDX-License-Identifier: MIT
// anywhere: // looptorch: SaveWeights needs #include <looptorch/policies/save_weights.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/save_weights.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::SaveWeights{.file = "a"});
