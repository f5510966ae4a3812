// SPDX-License-Identifier: MIT
// expect: looptorch: forward_scope would never run. Make it one public
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  int forward_scope(const lt::ForwardContext&) const { return 0; }
#else
  void forward_scope(const lt::ForwardContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
