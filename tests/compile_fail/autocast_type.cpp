// SPDX-License-Identifier: MIT
// expect: looptorch: Autocast<T> needs T = looptorch::fp16 or looptorch::bf16.
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#ifdef LOOPTORCH_TWIN
lt::Autocast<lt::bf16> policy;
#else
lt::Autocast<float> policy;
#endif
