// SPDX-License-Identifier: MIT
// expect: looptorch: snapshot() needs the code of snapshots. Include
// anywhere: looptorch: restore() needs the code of snapshots. Include
#ifdef LOOPTORCH_TWIN
#include <looptorch/policies/snapshot_every.hpp>
#endif

#include "../prelude.hpp"

lt::Trainer trainer(net, sgd, objective);
inline void repeat() { trainer.restore(trainer.snapshot()); }
