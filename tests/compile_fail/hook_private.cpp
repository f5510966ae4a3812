// SPDX-License-Identifier: MIT
// expect: looptorch: on_epoch_end would never run. Make it one public
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

class Mine {
#ifdef LOOPTORCH_TWIN
 public:
#endif
  void on_epoch_end(lt::EpochContext&) const {}
};

lt::Trainer trainer(net, sgd, objective, Mine{});
