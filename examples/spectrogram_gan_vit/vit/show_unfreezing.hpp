// SPDX-License-Identifier: MIT
// Reports how much of a model is trained while UnfreezeAt unfreezes it: the number of trained blocks and
// parameters. Also publishes validation.ccc as stopping.ccc, but only once the last blocks are
// unfrozen, so that StopEarly with that metric cannot end the run before.
#pragma once

#include <looptorch/app/ranks.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/validate.hpp>

#include "model.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace spectrogram_vit {

/// Counts the trained parts of a model.
struct Trained {
  std::int64_t blocks = 0, of_blocks = 0, parameters = 0, of_parameters = 0;

  friend bool operator==(const Trained&, const Trained&) = default;
};

[[nodiscard]] inline Trained trained_of(const torch::nn::Module& model) {
  Trained trained;
  for (const auto& parameter : model.parameters()) {
    trained.of_parameters += parameter.numel();
    if (parameter.requires_grad()) trained.parameters += parameter.numel();
  }
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (module->as<ViTBlock>() == nullptr) continue;
    ++trained.of_blocks;
    const auto parameters = module->parameters();
    trained.blocks += std::any_of(parameters.begin(), parameters.end(),
                                  [](const at::Tensor& parameter) { return parameter.requires_grad(); });
  }
  return trained;
}

/// A policy that reports unfreezing: prints a line when it happens, and publishes the metric "trained_blocks"
/// for progress and curve. Publishes "validation.ccc" as "stopping.ccc" from the last rule's epoch on:
/// StopEarly, given that metric, cannot end a run before all its blocks were tried.
struct ShowUnfreezing {
  std::int64_t last_epoch = 0;  ///< last epoch that a rule names
  std::FILE* out = stderr;

  struct State {
    Trained shown;
  };

  static constexpr looptorch::Phase phase = looptorch::Phase::evaluate;  // after UnfreezeAt, before StopEarly
  using runs_after = looptorch::After<looptorch::Every<looptorch::Validate>>;

  void on_fit_begin(looptorch::FitContext& fit, State&) const { fit.run.metrics().announce("stopping."); }

  void on_epoch_begin(looptorch::EpochContext& epoch, State& state) const {
    const auto trained = trained_of(epoch.run.model());
    if (trained == state.shown) return;
    state.shown = trained;
    if (!looptorch::app::leads()) return;
    const auto text = looptorch::message("epoch ", epoch.run.progress().epoch + 1, " trains ", trained.blocks,
                                         " of ", trained.of_blocks, " blocks and the head, ",
                                         trained.parameters, " of ", trained.of_parameters, " parameters\n");
    std::fputs(text.c_str(), out);
    std::fflush(out);
  }

  void on_epoch_end(looptorch::EpochContext& epoch, State&) const {
    auto& metrics = epoch.run.metrics();
    metrics.publish("trained_blocks", static_cast<double>(trained_of(epoch.run.model()).blocks));
    const auto ccc = metrics.find("validation.ccc");
    if (ccc && epoch.run.progress().epoch > last_epoch) metrics.publish("stopping.ccc", *ccc);
  }
};

}  // namespace spectrogram_vit
