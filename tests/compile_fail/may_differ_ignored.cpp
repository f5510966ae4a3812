// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `may_differ` would be ignored. Make it a public
// within: 10
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr lt::MayDiffer may_differ = lt::MayDiffer::always;
#else
  static constexpr bool may_differ = true;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
