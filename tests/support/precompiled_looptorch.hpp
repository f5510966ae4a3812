// SPDX-License-Identifier: MIT
// Includes the headers of looptorch that most tests use, to be precompiled once.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/optim/fused_adam.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>
#include <looptorch/trainer.hpp>
