// SPDX-License-Identifier: MIT
// expect: looptorch: two listed policies would each have to run before the other
// anywhere: Later
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Sooner;
struct Later {
  using runs_after = lt::After<Sooner>;
  void on_window_end(lt::WindowContext&) const {}
};
struct Sooner {
#ifdef LOOPTORCH_TWIN
  using runs_before = lt::Before<Later>;
#else
  using runs_after = lt::After<Later>;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Sooner{}, Later{});
