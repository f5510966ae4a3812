// SPDX-License-Identifier: MIT
// expect: looptorch: CacheFlushEvery<K> needs K >= 1 steps between flushes.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::CacheFlushEvery<1> policy;
#else
lt::CacheFlushEvery<0> policy;
#endif
