// SPDX-License-Identifier: MIT
// Writes the model's weights to a safetensors file at each epoch's end and as the fit ends, and prints the
// path. Use it in programs that need only the model; SnapshotEvery saves all that a run needs to resume.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include <torch/nn/module.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace looptorch {

template <class Module>
struct BasicRestoreBest;

/// Writes `file` whole or not at all, on the leading rank. Creates its folder. At the fit's end writes the
/// weights that RestoreBest restored, if listed; a failed fit leaves those of the last epoch.
struct SaveWeights {
  std::filesystem::path file = "model.safetensors";
  std::FILE* out = stderr;  ///< Gets the line with the path; null: none.

  static constexpr bool leader_only = true;
  static constexpr Phase phase = Phase::finish;
  using runs_after = After<Every<BasicRestoreBest>>;

  /// Throws UsageError for an empty name, and std::filesystem::filesystem_error if the folder cannot be
  /// created.
  void on_fit_begin(FitContext&) const {
    if (file.empty()) throw UsageError("SaveWeights needs the name of a file");
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  }

  /// Throws FileError for a file that cannot be written.
  void on_epoch_end(EpochContext& epoch) const { save_weights(epoch.run.model(), file); }

  void on_fit_end(FitContext& fit) const {
    if (fit.status == FitStatus::failed) return;
    save_weights(fit.run.model(), file);
    if (out) std::fprintf(out, "the weights are in %s\n", file.string().c_str());
  }
};

}  // namespace looptorch
