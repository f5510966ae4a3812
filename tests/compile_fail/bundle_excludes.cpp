// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy excludes another one. Drop one of them
// anywhere: HouseStandard
// anywhere: UpdateInBackward
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct HouseStandard : lt::Policies<lt::ShowProgress, lt::ClipGradNorm> {
  HouseStandard() : Policies(lt::ShowProgress{}, lt::ClipGradNorm{1.0}) {}
};
lt::FusedAdamW adamw(net->parameters());

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, adamw, objective, HouseStandard{}, lt::Accumulate<8>{});
#else
lt::Trainer trainer(net, adamw, objective, HouseStandard{}, lt::UpdateInBackward{});
#endif
