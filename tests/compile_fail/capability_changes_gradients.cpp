// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `changes_gradients` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool changes_gradients = true;
#else
  struct changes_gradients {};
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
