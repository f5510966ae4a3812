// SPDX-License-Identifier: MIT
// Includes all policies but CaptureGraphs, LogMetrics, Profile, SaveWeights and those for several processes,
// which have headers of their own (docs/policies.md). Each row names a policy, and the case to use it in.
//
//   Accumulate<N>         the batch you want does not fit
//   Autocast<bf16>        the hardware has 16-bit units, or activations must shrink
//   Autocast<fp16>        the same on GPUs before Ampere, with loss scaling
//   Autocast<>            the same in the type that suits the device, or that a flag sets
//   Autopsy               a NaN should name its operator, layer and sample
//   AverageWeights        evaluation should see averaged weights (EMA, SWA)
//   BackendFlags          TF32, cudnn.benchmark or deterministic algorithms should be set for a run
//   CacheFlushEvery<K>    the caching allocator fragments, or other processes need the memory
//   Checkpointed<Layer>   activations do not fit, and steps may take a third longer
//   ClipGradNorm          single batches destabilise training
//   ClipGradValue         single elements of gradients destabilise training
//   Freeze                parts of a pretrained model should stay as they are
//   On                    a hook is too small for a policy
//   PinnedPrefetchLoader  fit should take a dataset and load it by worker threads
//   RestoreBest           a fit should end with the best weights by a metric, not the last
//   RetryOnOom            one long batch should cost a retry, not the run
//   ScheduleLr            the learning rate should warm up, decay, or fall on a plateau
//   ShowProgress          progress should show on the terminal or in a log
//   SkipBadWindows        a damaged sample or a loss spike should cost a window, not the run
//   SnapshotEvery         a run that ends early should resume, bit for bit
//   StopEarly             training should end when a metric no longer improves
//   UnfreezeAt            parts of a pretrained model should be trained later than others
//   UpdateInBackward<>    gradients of all parameters do not fit (with Accumulate: UpdateInBackward<Sums>)
//   Validate              held-out data should be measured during fit
//   WatchMemory           the peak should show, and leaks, spikes and fragmentation be reported
//   WatchRounding         weights are in 16 bits, and the share of lost updates should show
#pragma once

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/average_weights.hpp>
#include <looptorch/policies/backend_flags.hpp>
#include <looptorch/policies/cache_flush_every.hpp>
#include <looptorch/policies/checkpointed.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/policies/freeze.hpp>
#include <looptorch/policies/on.hpp>
#include <looptorch/policies/restore_best.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/schedule_lr.hpp>
#include <looptorch/policies/show_progress.hpp>
#include <looptorch/policies/skip_bad_windows.hpp>
#include <looptorch/policies/snapshot_every.hpp>
#include <looptorch/policies/stop_early.hpp>
#include <looptorch/policies/unfreeze_at.hpp>
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/policies/validate.hpp>
#include <looptorch/policies/watch_memory.hpp>
#include <looptorch/policies/watch_rounding.hpp>
