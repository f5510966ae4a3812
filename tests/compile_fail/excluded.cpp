// SPDX-License-Identifier: MIT
// (clang++ 14 spells the reason and the remedy as character codes)
// expect: looptorch: a listed policy excludes another one
// anywhere: Excluded<UpdatesAtOnce, looptorch::ClipGradNorm
// anywhere-g++: clipping needs all gradients at once
// anywhere-g++: clip each gradient by itself
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct UpdatesAtOnce {
  using excludes = lt::ExclusionList<
      lt::Excludes<lt::ClipGradNorm, "clipping needs all gradients at once", "clip each gradient by itself">>;
  void on_window_end(lt::WindowContext&) const {}
};

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, UpdatesAtOnce{}, lt::Accumulate<2>{});
#else
lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{1.0}, UpdatesAtOnce{});
#endif
