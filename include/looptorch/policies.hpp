// SPDX-License-Identifier: MIT
// Every policy, one line each. A page for each stands in docs/policies.md.
#pragma once

#include "looptorch/data/pinned_prefetch_loader.hpp"  // use when fit should take a dataset and load it by worker threads
#include "looptorch/policies/accumulate.hpp"          // use when the batch you want does not fit
#include "looptorch/policies/autocast.hpp"            // use when the hardware has 16-bit units, or activations must shrink
#include "looptorch/policies/cache_flush_every.hpp"   // use when the caching allocator fragments, or others need the memory
#include "looptorch/policies/clip_grad_norm.hpp"      // use when single batches throw training off
#include "looptorch/policies/on.hpp"                  // use for a hook that is too small for a policy
#include "looptorch/policies/schedule_lr.hpp"         // use when the learning rate should warm up or decay
#include "looptorch/policies/show_progress.hpp"       // use when somebody watches
#include "looptorch/policies/validate.hpp"            // use when held-out data should be measured during fit
