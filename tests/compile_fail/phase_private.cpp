// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `phase` would be ignored. Make it a public
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

class Mine {
#ifdef LOOPTORCH_TWIN
 public:
#endif
  static constexpr lt::Phase phase = lt::Phase::clip;

 public:
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
