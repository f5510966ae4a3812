// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `evaluates` would be ignored. Make it a public Evaluates<Batches, Measure>
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  using evaluates = lt::Evaluates<std::vector<at::Tensor>>;
#else
  using evaluates = std::vector<at::Tensor>;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
