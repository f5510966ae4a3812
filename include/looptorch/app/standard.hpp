// SPDX-License-Identifier: MIT
// Adds progress, report and weights to a program of ten lines, as one bundle of policies:
//
//   lt::Trainer trainer(net, optimizer, objective, looptorch::app::standard("run"));
//   lt::Trainer trainer(net, optimizer, objective, looptorch::app::standard("run", held_out));
#pragma once

#include <looptorch/loop/compose/bundle.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/save_weights.hpp>
#include <looptorch/policies/show_progress.hpp>
#include <looptorch/policies/validate.hpp>

#include <filesystem>
#include <utility>

namespace looptorch::app {

/// Returns a bundle: progress on stderr; report.html and metrics in `folder`; the weights of each epoch, and
/// then the last ones, in model.safetensors there. Another run into the same folder writes over them.
[[nodiscard]] inline auto standard(const std::filesystem::path& folder) {
  return Policies{ShowProgress{}, LogMetrics{.folder = folder, .title = folder.string()},
                  SaveWeights{.file = folder / "model.safetensors"}};
}

/// Returns the policies of `standard(folder)` and a Validate of `held_out`, batches in a range that can
/// restart, held as Validate holds them: the objective's mean after each epoch, and two batches of it before
/// the first step, to see that it works.
template <class Batches>
[[nodiscard]] auto standard(const std::filesystem::path& folder, Batches&& held_out) {
  return Policies{standard(folder), Validate(std::forward<Batches>(held_out), {.sanity = 2})};
}

}  // namespace looptorch::app
