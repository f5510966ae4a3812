// SPDX-License-Identifier: MIT
// expect: looptorch: pieces would never run. Make it one public `std::int64_t pieces(void) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  std::int64_t pieces() const { return 2; }
#else
  int pieces() const { return 2; }
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
