// SPDX-License-Identifier: MIT
// expect: looptorch: two listed policies give a loss scale, and losses are multiplied by one. Drop one of
// them
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifndef LOOPTORCH_TWIN
  lt::LossScale* loss_scale(const lt::Run&) const { return nullptr; }
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{}, lt::Autocast<lt::fp16>{});
