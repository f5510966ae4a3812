// SPDX-License-Identifier: MIT
// Every policy, with when to use it. docs/policies.md has a section on each.
//
//   Accumulate<N>         the batch you want does not fit
//   Autocast<bf16>        the hardware has 16-bit units, or activations must shrink
//   CacheFlushEvery<K>    the caching allocator fragments, or others need the memory
//   ClipGradNorm          single batches throw training off
//   On                    a hook is too small for a policy
//   PinnedPrefetchLoader  fit should take a dataset and load it by worker threads
//   ScheduleLr            the learning rate should warm up or decay
//   ShowProgress          somebody watches
//   Validate              held-out data should be measured during fit
#pragma once

#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/cache_flush_every.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/on.hpp>
#include <looptorch/policies/schedule_lr.hpp>
#include <looptorch/policies/show_progress.hpp>
#include <looptorch/policies/validate.hpp>
