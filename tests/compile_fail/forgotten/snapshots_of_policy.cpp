// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy takes snapshots, and needs their code. Include
// expect: <looptorch/resume/snapshots.hpp> in its header.
#ifdef LOOPTORCH_TWIN
#include <looptorch/resume/snapshots.hpp>
#endif

#include "../prelude.hpp"

struct Mine {
  static constexpr bool takes_snapshots = true;
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
inline void train() { trainer.fit(data, {.resume = "run"}); }
