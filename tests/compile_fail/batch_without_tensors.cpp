// SPDX-License-Identifier: MIT
// expect: looptorch: fit cannot find the tensors in this batch type.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

class Closed {
 public:
  explicit Closed(int) {}
#ifdef LOOPTORCH_TWIN
  template <class F>
  void each_tensor(F&&) const {}
#endif
};
auto mine = [](Net& net, const Closed&) { return net->weight.mean(); };
lt::Trainer trainer(net, sgd, mine);

auto result = trainer.fit(std::vector<Closed>{});
