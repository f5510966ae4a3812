// SPDX-License-Identifier: MIT
// Declares the policies that <looptorch/trainer.hpp> does not include, to save compile time. If a program
// uses a policy without its header, the compiler's error points to the declaration here, whose comment names
// the header. Include this before any other declaration of these policies.
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
