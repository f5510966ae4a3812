// SPDX-License-Identifier: MIT
// Policies that <looptorch/trainer.hpp> declares only, since their headers bring code that other programs
// would compile in vain. Included before anything else declares them: a compiler that meets one without its
// header shows its line here.
#pragma once

namespace looptorch {

struct Autopsy;         // looptorch: Autopsy needs #include <looptorch/policies/autopsy.hpp>
struct CaptureGraphs;   // looptorch: CaptureGraphs needs #include <looptorch/policies/capture_graphs.hpp>
struct LogMetrics;      // looptorch: LogMetrics needs #include <looptorch/policies/log_metrics.hpp>
struct Profile;         // looptorch: Profile needs #include <looptorch/policies/profile.hpp>
struct SaveWeights;     // looptorch: SaveWeights needs #include <looptorch/policies/save_weights.hpp>
struct SkipBadWindows;  // looptorch: SkipBadWindows needs #include <looptorch/policies/skip_bad_windows.hpp>
struct SnapshotEvery;   // looptorch: SnapshotEvery needs #include <looptorch/policies/snapshot_every.hpp>

}  // namespace looptorch
