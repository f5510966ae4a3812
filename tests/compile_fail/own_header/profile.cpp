// SPDX-License-Identifier: MIT
// anywhere: // looptorch: Profile needs #include <looptorch/policies/profile.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/profile.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::Profile{.first = 2});
