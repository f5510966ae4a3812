// SPDX-License-Identifier: MIT
// expect: looptorch: loss_scale would never run. Make it one public `LossScale* loss_scale(const Run&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  lt::LossScale* loss_scale(const lt::Run&) const { return nullptr; }
#else
  lt::LossScale& loss_scale(const lt::Run&) const;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
