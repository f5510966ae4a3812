// SPDX-License-Identifier: MIT
// expect: looptorch: UpdateInBackward leaves no gradients to a listed policy that scales or clips them
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Noise {
#ifdef LOOPTORCH_TWIN
  static constexpr bool changes_gradients = false;
#else
  static constexpr bool changes_gradients = true;
#endif
  void before_update(lt::UpdateContext&) const {}
};

inline lt::FusedSGD optimizer(net->parameters());
lt::Trainer trainer(net, optimizer, objective, Noise{}, lt::UpdateInBackward{});
