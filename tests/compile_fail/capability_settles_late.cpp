// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `settles_late` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool settles_late = true;
#else
  static inline bool settles_late = true;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
