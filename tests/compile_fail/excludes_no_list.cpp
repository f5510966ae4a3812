// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `excludes` would be ignored.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  using excludes = lt::ExclusionList<lt::Excludes<lt::ClipGradNorm, "a", "b">>;
#else
  using excludes = lt::Excludes<lt::ClipGradNorm, "a", "b">;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
