// SPDX-License-Identifier: MIT
// anywhere: // looptorch: SnapshotEvery needs #include <looptorch/policies/snapshot_every.hpp>
// within: 6
// expect: incomplete type
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/snapshot_every.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective, lt::SnapshotEvery{.folder = "runs"});
