// SPDX-License-Identifier: MIT
// expect: looptorch: on_fit_ready would never run. Make it one public `void on_fit_ready(FitContext&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
  void on_fit_begin(lt::FitContext&) const {}
#ifdef LOOPTORCH_TWIN
  void on_fit_ready(lt::FitContext&) const {}
#else
  template <class Trainer>
  void on_fit_ready(Trainer&, lt::FitContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
