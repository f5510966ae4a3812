// SPDX-License-Identifier: MIT
// Policies that <looptorch/trainer.hpp> only declares, since their headers would cost other programs compile
// time. Included before anything else declares them: for a policy without its header, a compiler shows its
// line here.
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
