// SPDX-License-Identifier: MIT
// expect: looptorch: Accumulate<N> needs N >= 1 micro-batches a window. Use Accumulate<1> for no
// accumulation.
#include <looptorch/policies/accumulate.hpp>

#ifdef LOOPTORCH_TWIN
looptorch::Accumulate<1> policy;
#else
looptorch::Accumulate<0> policy;
#endif
