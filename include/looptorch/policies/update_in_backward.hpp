// SPDX-License-Identifier: MIT
// Updates each parameter during backward, as soon as its gradient exists, and frees the gradient: a full set
// of gradients never exists, which saves 4 bytes per parameter in fp32. Use it when gradients do not fit.
// With Accumulate, choose where the window's gradients are summed: SumsInBf16 takes 2 bytes per parameter,
// SumsInMoments uses the optimizer's moments and takes none.
//
//   Trainer(net, optimizer, objective, UpdateInBackward<>{.max_norm = 1.0})
//   Trainer(net, optimizer, objective, Accumulate<16>{}, UpdateInBackward<SumsInBf16>{})
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/optim/interface/per_parameter_optimizer.hpp>
#include <looptorch/optim/state/moment_accumulator.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/accumulation/backward_hooks.hpp>
#include <looptorch/policies/accumulation/moment_sums.hpp>
#include <looptorch/policies/accumulation/narrow_sums.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/policies/declared.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace looptorch {

struct RetryOnOom;

/// The family of all forms of UpdateInBackward: only one of them may be listed.
struct UpdateInBackwardFamily {};

/// No sums: each gradient is applied in the micro-batch that makes it.
struct NoSums {};

/// Sums of a window's gradients in bf16, rounded stochastically: 2 bytes a parameter, freed one by one in the
/// window's last micro-batch. The rounding depends on `seed`, which snapshots hold, and on the step.
struct SumsInBf16 {
  std::uint64_t seed = 0;
  std::int64_t min_size = 4096;  ///< Smaller parameters have sums in their gradients' dtype; at least 1.
};

/// Adds gradients to the optimizer's moments as they arrive: no further memory. Needs FusedAdam, FusedAdamW,
/// AdamWBf16 or another MomentAccumulator, with betas above 0. The second moment sums the micro-batches'
/// squares instead of squaring their sum, and a window counts in both moments by its weight. `seed` is for
/// moments in bf16.
struct SumsInMoments {
  std::uint64_t seed = 0;
};

namespace detail {

/// The exclusions of every form of UpdateInBackward, and `More`. `ToClip` says what clips instead.
template <FixedString ToClip, class... More>
using InBackwardExclusions = ExclusionList<
    More...,
    Excludes<Autopsy, "gradients are applied and freed before they could be looked at",
             "List one of the two">,
    Excludes<SkipBadWindows,
             "a bad window is skipped before its update, but backward has made that update already",
             "List one of the two">,
    Excludes<ClipGradNorm, "the norm of all gradients is known only when all exist", ToClip>,
    Excludes<ClipGradValue, "no gradient is left when it would clip", ToClip>,
    Excludes<Autocast<fp16>,
             "an overflow is known only when all gradients exist, and some are applied by then",
             "Use Autocast<bf16>, which needs no loss scaling">,
    Excludes<RetryOnOom, "if memory runs out in backward, some parameters are updated already",
             "Drop RetryOnOom, and resume from a snapshot">,
    Excludes<Autocast<>,
             "it may scale losses for fp16, whose overflow is known only when all gradients exist",
             "Use Autocast<bf16>">>;

/// Updates each parameter with its gradient from one micro-batch.
class ImmediateUpdates : public GradientSink {
 public:
  explicit ImmediateUpdates(ParameterUpdate update) : update_(std::move(update)) {}
  void begin(const BackwardContext& backward) {
    if (!backward.last)
      throw UsageError(
          "UpdateInBackward applies each gradient in the micro-batch that makes it, and the window has more: "
          "use UpdateInBackward<SumsInBf16>");
    update_.begin(backward);
  }

 protected:
  void consume_gradient(const at::Tensor& parameter) override { update_.make(parameter); }

 private:
  ParameterUpdate update_;
};

/// Returns the optimizer as `Interface`. Throws UsageError if it does not implement `Interface`.
template <class Interface>
Interface& optimizer_as(const UpdateView& view, const char* error) {
  auto* optimizer = dynamic_cast<Interface*>(view.optimizer);
  if (!optimizer) throw UsageError(error);
  return *optimizer;
}

inline ParameterUpdate parameter_update(const UpdateView& view, double max_norm) {
  if (!(max_norm > 0)) throw UsageError(message("UpdateInBackward needs a max_norm above 0, got ", max_norm));
  return {
      optimizer_as<PerParameterOptimizer>(
          view,
          "UpdateInBackward needs an optimizer that is a looptorch::PerParameterOptimizer: train with FusedAdamW, "
          "AdamW8bit or another of looptorch's"),
      max_norm};
}

}  // namespace detail

/// Updates each parameter during backward, for windows of several micro-batches, whose gradients `Sums` adds
/// up. Updates in the window's last backward, or at its end if that was not known to be the last. Needs one
/// update, by an optimizer that is a PerParameterOptimizer. Policies see no gradients before an update. A
/// backward that throws in the last micro-batch leaves some parameters updated.
template <class Sums = NoSums>
struct UpdateInBackward {
  static_assert(std::same_as<Sums, SumsInBf16> || std::same_as<Sums, SumsInMoments>,
                "looptorch: UpdateInBackward<Sums> knows SumsInBf16 and SumsInMoments. Use one of them. See "
                "docs/errors.md#update-in-backward");

  Sums sums = {};
  /// Largest 2-norm of each parameter's gradient of a window. Not for SumsInMoments.
  double max_norm = HUGE_VAL;

  using family = UpdateInBackwardFamily;
  using excludes = detail::InBackwardExclusions<
      "Use UpdateInBackward<SumsInBf16>{.max_norm = 1.0}, which clips each parameter's gradient by its own "
      "norm; SumsInMoments cannot clip">;
  static constexpr Phase phase = Phase::update;
  static constexpr bool updates_in_backward = true;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;
  static constexpr bool kInMoments = std::same_as<Sums, SumsInMoments>;

  struct State {
    std::shared_ptr<std::conditional_t<kInMoments, detail::MomentSums, detail::NarrowSums>> held;
    std::shared_ptr<detail::BackwardHooks> hooks;
    std::optional<std::uint64_t> seed;  ///< Current: the first fit's, or the snapshot's.
    detail::WindowMean mean;            ///< Of the windows' weights, for SumsInMoments.
  };

  /// Throws UsageError for options out of range, an optimizer that cannot update single parameters, and
  /// parameters that already have such hooks.
  void on_fit_begin(FitContext& fit, State& state) const {
    const UpdateView& view = fit.run.updates()[0];
    if (!state.seed) state.seed = sums.seed;
    state.hooks = nullptr;
    if constexpr (kInMoments) {
      if (max_norm < HUGE_VAL)
        throw UsageError(
            "UpdateInBackward<SumsInMoments> never has the gradient of a window, whose norm max_norm is "
            "about: use SumsInBf16");
      auto& optimizer = detail::optimizer_as<MomentAccumulator>(
          view,
          "UpdateInBackward<SumsInMoments> needs an optimizer that is a "
          "looptorch::MomentAccumulator: train with FusedAdamW, FusedAdam or AdamWBf16");
      state.held = std::make_shared<detail::MomentSums>(optimizer, view.parameters, *state.seed, state.mean);
    } else {
      if (sums.min_size < 1)
        throw UsageError(message("SumsInBf16's min_size is at least 1, and is ", sums.min_size));
      state.held = std::make_shared<detail::NarrowSums>(detail::parameter_update(view, max_norm),
                                                        view.parameters, sums.min_size, *state.seed);
    }
    state.hooks = std::make_shared<detail::BackwardHooks>(view.parameters, state.held);
  }
  void before_backward(BackwardContext& backward, State& state) const { state.held->begin(backward); }
  void finish_backward(BackwardContext& backward, State& state) const { state.held->finish(backward); }
  void on_fit_end(FitContext&, State& state) const {
    state.hooks = nullptr;
    state.held = nullptr;
  }
  /// Forecasts the bytes of a window's sums; a window of one micro-batch has none.
  void forecast_memory(MemoryForecast& forecast, State&) const {
    std::int64_t bytes = 0;
    if constexpr (!kInMoments)
      for (const at::Tensor& parameter : forecast.run.updates()[0].parameters)
        if (forecast.window_length > 1 && forecast.trains(parameter))
          bytes += parameter.numel() < sums.min_size ? static_cast<std::int64_t>(parameter.nbytes())
                                                     : 2 * parameter.numel();
    forecast.gradient_sums = bytes;
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("seed", static_cast<std::int64_t>(state.seed.value_or(sums.seed)));
    if constexpr (kInMoments) state.mean.save(out);
  }
  void load_state_dict(const StateDict& in, State& state) const {
    detail::WindowMean mean;
    if constexpr (kInMoments) mean.load(in);
    state.seed = static_cast<std::uint64_t>(in.get<std::int64_t>("seed"));
    state.mean = mean;
  }
};

/// Without sums: `UpdateInBackward<>{}`, for windows of one micro-batch.
template <>
struct UpdateInBackward<NoSums> {
  double max_norm = HUGE_VAL;  ///< Largest 2-norm of each parameter's own gradient, above 0; infinity: any.

  using family = UpdateInBackwardFamily;
  using excludes = detail::InBackwardExclusions<
      "Use UpdateInBackward<>{.max_norm = 1.0}, which clips each parameter's gradient by its own norm",
      Excludes<AccumulateFamily, "each gradient is applied and freed in the micro-batch that makes it",
               "Use UpdateInBackward<SumsInBf16>, or drop Accumulate">>;
  static constexpr Phase phase = Phase::update;
  static constexpr bool updates_in_backward = true;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;

  struct State {
    std::shared_ptr<detail::ImmediateUpdates> updates;
    std::shared_ptr<detail::BackwardHooks> hooks;
  };

  /// Throws UsageError for a max_norm not above 0, and for parameters that already have such hooks.
  void on_fit_begin(FitContext& fit, State& state) const {
    const UpdateView& view = fit.run.updates()[0];
    state.hooks = nullptr;
    state.updates = std::make_shared<detail::ImmediateUpdates>(detail::parameter_update(view, max_norm));
    state.hooks = std::make_shared<detail::BackwardHooks>(view.parameters, state.updates);
  }
  void before_backward(BackwardContext& backward, State& state) const { state.updates->begin(backward); }
  void on_fit_end(FitContext&, State& state) const { state.hooks = nullptr; }
  void forecast_memory(MemoryForecast& forecast, State&) const { forecast.gradient_sums = 0; }
};

}  // namespace looptorch
