// SPDX-License-Identifier: MIT
// (clang++ 14 spells the reason and the remedy as character codes)
// within: 7
// expect: looptorch: a listed policy excludes another one
// expect: Excluded<UpdatesAtOnce, looptorch::ClipGradNorm
// expect-g++: clipping needs all gradients at once
// expect-g++: clip each gradient by itself
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct UpdatesAtOnce {
  using excludes = lt::ExclusionList<lt::Excludes<lt::ClipGradNorm, "clipping needs all gradients at once", "clip each gradient by itself">>;
  void on_window_end(lt::WindowContext&) const {}
};

#ifdef LOOPTORCH_TWIN
lt::Trainer trainer(net, sgd, objective, UpdatesAtOnce{}, lt::Accumulate<2>{});
#else
lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{1.0}, UpdatesAtOnce{});
#endif
