// SPDX-License-Identifier: MIT
// What a program of ten lines lists to be told how its training goes and where the weights are:
//
//   lt::Trainer trainer(net, optimizer, objective, looptorch::app::standard("run"));
#pragma once

#include <looptorch/loop/compose/bundle.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/save_weights.hpp>
#include <looptorch/policies/show_progress.hpp>

#include <filesystem>

namespace looptorch::app {

/// Returns a bundle: progress on stderr; report.html and metrics in `folder`; the weights of each epoch, and
/// then the last ones, in model.safetensors there. Another run into the same folder writes over them.
[[nodiscard]] inline auto standard(const std::filesystem::path& folder) {
  return Policies{ShowProgress{}, LogMetrics{.folder = folder, .title = folder.string()},
                  SaveWeights{.file = folder / "model.safetensors"}};
}

}  // namespace looptorch::app
