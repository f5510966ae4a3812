// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `makes_loader` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool makes_loader = true;
#else
  static bool makes_loader() { return true; }
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
