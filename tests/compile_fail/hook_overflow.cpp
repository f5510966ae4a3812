// SPDX-License-Identifier: MIT
// expect: looptorch: on_overflow would never run. Make it one public `void
// on_overflow(OverflowContext&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void on_overflow(lt::OverflowContext&) const {}
#else
  void on_overflow(const lt::OverflowContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
