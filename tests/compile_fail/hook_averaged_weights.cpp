// SPDX-License-Identifier: MIT
// expect: looptorch: averaged_weights would never run. Make it one public `void averaged_weights(TensorMap&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void averaged_weights(lt::TensorMap&) const {}
#else
  lt::TensorMap averaged_weights() const { return {}; }
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
