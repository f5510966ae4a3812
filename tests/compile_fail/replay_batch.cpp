// SPDX-License-Identifier: MIT
// expect: looptorch: a window can be rerun only if its batches can be written to disk. Make the batch an
// aggregate
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/replay.hpp>
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
  void state_dict(lt::StateDict& out) const { out.set("samples", samples); }
  void load_state_dict(const lt::StateDict& in) { samples = in.get<at::Tensor>("samples"); }
#endif
  at::Tensor samples;
};

auto weighed = [](Net& net, const Clips& clips) {
  return lt::Loss{.value = net(clips.samples).mean(), .weight = 3};
};
lt::Trainer trainer(net, sgd, weighed, lt::Autopsy{});

auto replayed = lt::replay<Clips>(trainer, "bundle");
