// SPDX-License-Identifier: MIT
// expect: looptorch: evaluate calls its callable as (Model&, const Batch&)
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  using evaluates = lt::Evaluates<std::vector<at::Tensor>, at::Tensor (*)(Net&, const at::Tensor&)>;
#else
  using evaluates = lt::Evaluates<std::vector<at::Tensor>, at::Tensor (*)(const at::Tensor&)>;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
