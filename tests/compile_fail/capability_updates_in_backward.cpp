// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `updates_in_backward` would be ignored. Make it a public `static constexpr
// bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool updates_in_backward = false;
#else
  static bool updates_in_backward() { return true; }
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
