// SPDX-License-Identifier: MIT
// expect: looptorch: after_update would never run. Make it one public `void after_update(UpdateContext&)
// const`, with `State&` added
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
  struct State {
    int seen = 0;
  };
#ifdef LOOPTORCH_TWIN
  void after_update(lt::UpdateContext&, State&) const {}
#else
  void after_update(lt::UpdateContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
