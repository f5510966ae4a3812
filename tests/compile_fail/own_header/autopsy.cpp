// SPDX-License-Identifier: MIT
// anywhere: // looptorch: Autopsy needs #include <looptorch/policies/autopsy.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/autopsy.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::Autopsy{.folder = "bad"});
