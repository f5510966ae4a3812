// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `only_reports` would be ignored. Make it a public `static constexpr bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool only_reports = true;
#else
  static bool only_reports() { return true; }
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
