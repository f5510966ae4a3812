// SPDX-License-Identifier: MIT
// expect: looptorch: on_out_of_memory would never run. Make it one public `void
// on_out_of_memory(OutOfMemoryContext&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void on_out_of_memory(lt::OutOfMemoryContext&) const {}
#else
  void on_out_of_memory(const lt::OutOfMemoryContext&) const {}
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
