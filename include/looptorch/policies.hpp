// SPDX-License-Identifier: MIT
// Includes all policies but CaptureGraphs, LogMetrics, Profile, SaveWeights and those for several processes,
// which have headers of their own. docs/policies.md says when to use each.
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
