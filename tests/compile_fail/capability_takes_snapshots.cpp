// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `takes_snapshots` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/resume/snapshots.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool takes_snapshots = true;
#else
  bool takes_snapshots = true;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
