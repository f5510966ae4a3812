// SPDX-License-Identifier: MIT
// expect: looptorch: on_window_loss would never run. Make it one public `void
// on_window_loss(WindowLossContext&)
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void on_window_loss(lt::WindowLossContext&) const {}
#else
  void on_window_loss(lt::WindowContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
