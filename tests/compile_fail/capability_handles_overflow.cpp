// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `handles_overflow` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool handles_overflow = true;
#else
  static constexpr int handles_overflow = 1;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
