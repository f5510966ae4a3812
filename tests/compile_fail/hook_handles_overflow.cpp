// SPDX-License-Identifier: MIT
// expect: looptorch: handles_overflow would never run. Make it one public `bool handles_overflow(const Run&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  bool handles_overflow(const lt::Run&) const { return true; }
#else
  static constexpr bool handles_overflow = true;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
