// SPDX-License-Identifier: MIT
// expect: looptorch: a listed policy gives ranks, and needs the code by which they agree. Include
#ifdef LOOPTORCH_TWIN
#include <looptorch/ranks/several_ranks.hpp>
#endif

#include "../prelude.hpp"

struct Mine {
  lt::Ranks* ranks(const lt::Run&) const { return nullptr; }
};

lt::Trainer trainer(net, sgd, objective, Mine{});
inline void train() { trainer.fit(data); }
