// SPDX-License-Identifier: MIT
// expect: looptorch: micro_batches would never run. Make it one public `std::int64_t micro_batches(void) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  std::int64_t micro_batches() const { return 4; }
#else
  static std::int64_t micro_batches() { return 4; }
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
