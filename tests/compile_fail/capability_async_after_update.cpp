// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `async_after_update` would be ignored. Make it a public `static constexpr
// bool`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr bool async_after_update = true;
#else
  static inline bool async_after_update = true;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
