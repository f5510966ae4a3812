// SPDX-License-Identifier: MIT
// expect: looptorch: before_resume would never run. Make it one public `void before_resume(const ResumeContext&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void before_resume(const lt::ResumeContext&) const {}
#else
  void before_resume(std::int64_t) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
