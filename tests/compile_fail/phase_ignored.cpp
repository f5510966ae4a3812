// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `phase` would be ignored.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr lt::Phase phase = lt::Phase::clip;
#else
  static constexpr int phase = 1;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
