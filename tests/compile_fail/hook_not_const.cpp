// SPDX-License-Identifier: MIT
// expect: looptorch: before_update would never run. Make it one public `void before_update(UpdateContext&)
// const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void before_update(lt::UpdateContext&) const {}
#else
  void before_update(lt::UpdateContext&) {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
