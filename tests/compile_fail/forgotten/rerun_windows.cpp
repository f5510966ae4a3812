// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy has may_rerun, and needs the code that reruns windows. Include
#ifdef LOOPTORCH_TWIN
#include <looptorch/resume/window_bundle.hpp>
#endif

#include "../prelude.hpp"

struct Mine {
  bool may_rerun() const { return true; }
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
inline void train() { trainer.fit(data); }
