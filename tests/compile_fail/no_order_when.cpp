// SPDX-License-Identifier: MIT
// expect: looptorch: two listed policies change gradients in one phase, and nothing says which comes first
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Bounds {
#ifdef LOOPTORCH_TWIN
  static constexpr bool changes_gradients = false;
#else
  static constexpr bool changes_gradients = true;
#endif
  void before_update(lt::UpdateContext&) const {}
};
struct Rounds {
  static constexpr bool changes_gradients = true;
  void before_update(lt::UpdateContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, lt::When{true, Bounds{}}, lt::When{true, Rounds{}});
