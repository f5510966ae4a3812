// SPDX-License-Identifier: MIT
// expect: looptorch: a policy's `resume_rule` would be ignored. Make it a public
// within: 10
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  static constexpr lt::ResumeRule resume_rule = lt::ResumeRule::always;
#else
  static constexpr bool resume_rule = true;
#endif
  void on_window_end(lt::WindowContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
