// SPDX-License-Identifier: MIT
// expect: looptorch: forecast_memory would never run. Make it one public `void forecast_memory(MemoryForecast&) const`
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Mine {
#ifdef LOOPTORCH_TWIN
  void forecast_memory(lt::MemoryForecast&) const {}
#else
  std::int64_t forecast_memory() const { return 0; }
#endif
};

lt::Trainer trainer(net, sgd, objective, Mine{});
