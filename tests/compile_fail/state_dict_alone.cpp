// SPDX-License-Identifier: MIT
// expect: looptorch: a policy has one of state_dict and load_state_dict. What is saved must be loaded again:
// give it both.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
  struct State {
    double seen = 0;
  };
  void on_window_end(lt::WindowContext&, State& state) const { ++state.seen; }
  void state_dict(lt::StateDict& out, State& state) const { out.set("seen", state.seen); }
#ifdef LOOPTORCH_TWIN
  void load_state_dict(const lt::StateDict& in, State& state) const { state.seen = in.get<double>("seen"); }
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
