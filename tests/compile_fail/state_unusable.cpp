// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's State cannot be used. Make it public and default-constructible.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
  struct State {
#ifndef LOOPTORCH_TWIN
    explicit State(int) {}
#endif
  };
  void on_window_end(lt::WindowContext&, State&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
