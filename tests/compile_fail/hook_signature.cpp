// SPDX-License-Identifier: MIT
// expect: looptorch: on_window_end would never run. Make it one public `void on_window_end(WindowContext&)
// const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void on_window_end(lt::WindowContext&) const {}
#else
  void on_window_end(lt::EpochContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
