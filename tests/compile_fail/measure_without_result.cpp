// SPDX-License-Identifier: MIT
// expect: looptorch: a measure that accumulates needs `add(Model&, const Batch&)`, and `result()`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Largest {
  double largest = 0;
  void add(Net& net, const at::Tensor& batch) { largest = net(batch).max().item<double>(); }
#ifdef LOOPTORCH_TWIN
  double result() const { return largest; }
#else
  void result() const {}
#endif
};

lt::Trainer trainer(net, sgd, objective);
auto result = trainer.evaluate(data, Largest{});
