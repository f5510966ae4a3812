// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy splits batches, and this type cannot be split. Give it `slice(begin,
// end) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

class Clips {
 public:
  template <class Visit>
  void each_tensor(Visit&& visit) {
    visit(samples);
  }
  template <class Visit>
  void each_tensor(Visit&& visit) const {
    visit(samples);
  }
#ifdef LOOPTORCH_TWIN
  Clips slice(std::int64_t, std::int64_t) const { return *this; }
#endif
  at::Tensor samples;
};

auto weighed = [](Net& net, const Clips& clips) {
  return lt::Loss{.value = net(clips.samples).mean(), .weight = 3};
};
lt::Trainer trainer(net, sgd, weighed, lt::RetryOnOom{});

auto result = trainer.fit(std::vector<Clips>(2));
