// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `family` would be ignored. Make it a public type
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

class Mine {
#ifdef LOOPTORCH_TWIN
 public:
#endif
  using family = lt::AccumulateFamily;

 public:
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
