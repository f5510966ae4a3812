// SPDX-License-Identifier: MIT
// expect: looptorch: on_fit_begin would never run. Make it one public
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
  void on_fit_begin(lt::FitContext&) const {}
#ifndef LOOPTORCH_TWIN
  void on_fit_begin(int) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
