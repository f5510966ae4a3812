// SPDX-License-Identifier: MIT
// Measures the share of updates of 16-bit weights that rounding swallows: weights that an update leaves
// unchanged although they have a gradient. Use it to see whether a run in bf16 learns. Costs a copy of some
// thousand elements per parameter every K steps, and nothing in between.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace looptorch {

struct WatchMemory;

/// Offers `swallowed_updates`, a share from 0 to 1, to LogMetrics every `every` steps, and keeps the last:
/// `trainer.policy<WatchRounding>().share`. An optimizer that rounds stochastically, or keeps the lost bits,
/// has as high a share, but loses nothing on average.
struct WatchRounding {
  std::int64_t every = 100;    ///< Steps from one measurement to the next, at least 1.
  std::int64_t sample = 4096;  ///< Elements of each parameter that are compared, spread over it; at least 1.

  static constexpr Phase phase = Phase::observe;
  static constexpr bool leader_only = true;
  static constexpr bool async_after_update = true;  // weights stay until the next update
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  using runs_after = After<WatchMemory>;  // which counts the samples as memory of the update

  struct State {
    at::Tensor share;  ///< 0-dim fp64, on the weights' device; undefined before the first measurement.
    std::int64_t elements = 0;  ///< Elements of 16-bit weights that were compared.

    struct Sample {
      at::Tensor parameter, before, moves;
    };
    std::vector<Sample> samples;  // of the update under way
  };

  void on_fit_begin(FitContext&, State& state) const {
    if (every < 1 || sample < 1)
      throw UsageError(
          message("WatchRounding needs `every` and `sample` of at least 1, got ", every, " and ", sample));
    state = {};
  }

  void before_update(UpdateContext& update, State& state) const {
    state.samples.clear();
    if (update.run.progress().step % every != 0) return;
    at::NoGradGuard no_gradients;
    for (const at::Tensor& parameter : update.view().parameters) {
      const bool narrow = parameter.scalar_type() == at::kBFloat16 || parameter.scalar_type() == at::kHalf;
      if (!narrow || !parameter.requires_grad() || parameter.numel() == 0) continue;
      const at::Tensor& gradient = parameter.grad();  // none if it was applied in backward
      if (gradient.defined() && gradient.layout() != at::kStrided) continue;
      state.samples.push_back(
          {parameter, spread(parameter).clone(), gradient.defined() ? spread(gradient).ne(0) : at::Tensor()});
    }
  }

  void after_update(UpdateContext& update, State& state) const {
    if (state.samples.empty()) return;
    at::NoGradGuard no_gradients;
    const auto sums = state.samples.front().before.options().dtype(at::kDouble);
    at::Tensor same = at::zeros({}, sums), all = at::zeros({}, sums);
    state.elements = 0;
    for (const State::Sample& taken : state.samples) {
      at::Tensor equal = spread(taken.parameter).eq(taken.before);
      if (taken.moves.defined()) equal = equal.logical_and(taken.moves);
      same += equal.sum().to(sums.device());
      all +=
          taken.moves.defined() ? taken.moves.sum().to(sums.device()) : at::zeros({}, sums) + equal.numel();
      state.elements += taken.before.numel();
    }
    state.samples.clear();
    state.share = same / all.clamp_min(1);
    update.run.offer("swallowed_updates", state.share);
  }

  void on_fit_end(FitContext&, State& state) const { state.samples.clear(); }

 private:
  [[nodiscard]] at::Tensor spread(const at::Tensor& tensor) const {
    const std::int64_t stride = std::max<std::int64_t>(1, tensor.numel() / sample);
    return tensor.detach().flatten().slice(0, 0, std::min(tensor.numel(), sample * stride), stride);
  }
};

}  // namespace looptorch
