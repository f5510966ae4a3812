// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `reads_memory` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool reads_memory = true;
#else
  static bool reads_memory() { return true; }
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
