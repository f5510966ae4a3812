// SPDX-License-Identifier: MIT
// Fits a program's Trainer with the settings of the standard flags. With `--replay` it instead runs a saved
// window again, and trains nothing.
#pragma once

#include <looptorch/app/run_main.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/replay.hpp>

#include <ranges>
#include <type_traits>
#include <utility>

namespace looptorch::app {

/// Fits `trainer` to the batches; resumes from `snapshot` unless that is empty. With `options.replay` trains
/// nothing and throws ReplayEnded, which `run_main` prints.
template <class Trainer, class Batches>
FitResult fit(Trainer& trainer, Batches&& batches, const TrainingOptions& options, ResumeFrom snapshot = {}) {
  if (options.replay.empty())
    return trainer.fit(std::forward<Batches>(batches), options.fit_options(std::move(snapshot)));
  using Batch = std::remove_cvref_t<std::ranges::range_reference_t<std::remove_reference_t<Batches>>>;
  const Replayed replayed = replay<Batch>(trainer, options.replay);
  throw ReplayEnded(replayed.text(), replayed.is_clean());
}

}  // namespace looptorch::app
