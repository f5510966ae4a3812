// SPDX-License-Identifier: MIT
// Shows progress, writes a report and saves the weights, by one bundle of policies for a short program. With
// held-out batches it also validates after each epoch:
//
//   lt::Trainer trainer(net, optimizer, objective, lt::app::standard("run"));
//   lt::Trainer trainer(net, optimizer, objective, lt::app::standard("run", held_out));
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
/// then the last ones, in model.safetensors there. Another run into the same folder overwrites these files.
[[nodiscard]] inline auto standard(const std::filesystem::path& folder) {
  return Policies{ShowProgress{}, LogMetrics{.folder = folder, .title = folder.string()},
                  SaveWeights{.file = folder / "model.safetensors"}};
}

/// Returns the policies of `standard(folder)` and a Validate. It evaluates `held_out`, a range of batches
/// that can restart, after each epoch, and two of its batches before the first step, as a check. Holds the
/// range as Validate does.
template <class Batches>
[[nodiscard]] auto standard(const std::filesystem::path& folder, Batches&& held_out) {
  return Policies{standard(folder), Validate(std::forward<Batches>(held_out), {.sanity = 2})};
}

}  // namespace looptorch::app
