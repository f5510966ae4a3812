// SPDX-License-Identifier: MIT
// anywhere: // looptorch: SkipBadWindows needs #include <looptorch/policies/skip_bad_windows.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/skip_bad_windows.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::SkipBadWindows{.spikes = 8});
