// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy keeps windows, and needs the code that reruns them. Include
#ifdef LOOPTORCH_TWIN
#include <looptorch/resume/window_bundle.hpp>
#endif

#include "../prelude.hpp"

struct Mine {
  bool keeps_windows() const { return true; }
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
inline void train() { trainer.fit(data); }
