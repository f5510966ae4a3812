// SPDX-License-Identifier: MIT
// expect: looptorch: a Trainer with several updates has several objectives. Say what to measure
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  using evaluates = lt::Evaluates<std::vector<at::Tensor>, at::Tensor (*)(Net&, const at::Tensor&)>;
#else
  using evaluates = lt::Evaluates<std::vector<at::Tensor>>;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, lt::Update{sgd, objective}, lt::Update{sgd, objective}, Mine{});
