// SPDX-License-Identifier: MIT
// expect: looptorch: a type is listed that has no hook, so it is no policy.
// anywhere: When<looptorch::Policies<
// anywhere: Misspelt
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Misspelt {
#ifdef LOOPTORCH_TWIN
  void on_window_end(lt::WindowContext&) const {}
#else
  void on_windows_end(lt::WindowContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective,
                    lt::When{true, lt::Policies{lt::Accumulate<4>{}, std::tuple(Misspelt{})}});
