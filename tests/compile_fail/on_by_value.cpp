// SPDX-License-Identifier: MIT
// expect: looptorch: On needs a callable that takes one of UpdateContext&, WindowContext& and EpochContext&
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::On policy{lt::kClip, [](lt::UpdateContext& update) { update.veto(); }};
#else
lt::On policy{lt::kClip, [](lt::UpdateContext update) { update.veto(); }};
#endif
