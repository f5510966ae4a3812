// SPDX-License-Identifier: MIT
// expect: looptorch: a type is listed that has no hook, so it is no policy.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void on_fit_end(lt::FitContext&) const {}
#else
  void on_the_end(lt::FitContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
