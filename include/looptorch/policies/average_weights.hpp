// SPDX-License-Identifier: MIT
// Averages the weights over the updates, exponentially (EMA) or equally (SWA), and evaluates with the
// averages. Averages are often better and always steadier than the last weights. Use it for generators of
// images and speech, for long runs at a high learning rate, and for steady evaluations. Costs memory for a
// second set of weights, on the device or on the host, and one pass over the weights for each averaged
// update. Evaluation copies nothing, unless the averages lie on the host or the weights have 16 bits.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/visit_held.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/weights/weight_averages.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <variant>

namespace looptorch {

/// Exponential moving average: average = decay x average + (1 - decay) x weight, from the first weights on.
struct Ema {
  double decay = 0.999;  ///< In [0, 1): about the last 1 / (1 - decay) averaged updates count.
  bool warmup = false;   ///< After n averaged updates the decay is at most (1 + n) / (10 + n).

  /// Returns the weight of the newest weights after `count` averaged updates.
  [[nodiscard]] double share(std::int64_t count) const {
    const auto n = static_cast<double>(count);
    return 1 - (warmup ? std::min(decay, (1 + n) / (10 + n)) : decay);
  }
};

/// Stochastic weight averaging (Izmailov et al., 2018): all averaged weights count the same.
struct Swa {
  [[nodiscard]] double share(std::int64_t count) const { return 1 / static_cast<double>(count + 1); }
};

/// Averages the parameters of the model that an update trains, after each applied update, as torch.optim's
/// AveragedModel. A parameter that several updates train is averaged after the last of them in the Trainer's
/// list. A parameter frozen after its average exists is still averaged. One that is unfrozen or joins the
/// optimizer later has the average of a parameter that never moved before.
///
/// A template so that this header does not include torch/nn; write `AverageWeights`.
template <class Module>
struct BasicAverageWeights {
  std::variant<Ema, Swa> rule = Ema{};
  std::int64_t begin_after = 0;  ///< Updates before averaging begins.
  std::int64_t every = 1;        ///< Updates from one average to the next.
  bool average_buffers = false;  ///< Floating-point buffers too, BatchNorm's statistics among them.
  std::string update = {};       ///< The one update whose parameters are averaged, by name; empty: all.
  bool evaluate = true;          ///< `evaluate` and `Validate` use the averages once there are any.
  bool offload = false;  ///< Keeps averages of a model on a device in host memory, with the same bits.

  static constexpr Phase phase = Phase::average;
  static constexpr bool ignores_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr bool async_after_update =
      true;  // the next update moves the weights, unless something else writes to them
  using State = detail::WeightAverages;

  /// Throws UsageError for options out of range and an unknown update; StateError for loaded averages that do
  /// not fit this model.
  void on_fit_begin(FitContext& fit, State& state) const {
    check_options();
    check_update(fit.run);
    state.forget_buffers();
    state.set_offload(offload);
    state.follow(model_of(fit.run));
  }

  void before_update(UpdateContext& context, State& state) const {
    state.forget_buffers();  // copied in earlier windows, whose updates are all counted by now
    if (is_averaged(context.view()) && state.count(context.index()) > 0) admit(context, state);
  }

  void after_update(UpdateContext& context, State& state) const {
    if (!is_averaged(context.view()) || !is_due(context.view().applied)) return;
    const std::int64_t count = state.count(context.index());
    if (count > 0) return state.move(context.index(), share(count));
    auto undo = c10::make_scope_exit([&] { state.forget(context.index()); });  // as memory runs out
    admit(context, state);
    if (average_buffers && context.index() == first_averaged(context.run))
      state.admit_buffers(context.index(), model_of(context.run));
    state.begin(context.index());
    undo.release();
  }

  void on_window_end(WindowContext& window, State& state) const {
    // Whether this window's update was applied may be unread: if it was, its number is `applied + 1`.
    if (average_buffers && is_due(window.run.updates()[first_averaged(window.run)].applied + 1))
      state.keep_buffers(model_of(window.run));
  }

  detail::AveragesInPlace evaluation_scope(const EvaluationContext& context, State& state) const {
    const bool use = evaluate && !state.in_place();
    if (use) {
      state.set_offload(offload);
      state.follow(model_of(context.run));
    }
    return detail::AveragesInPlace(use ? &state : nullptr);
  }

  void averaged_weights(TensorMap& averages, State& state) const {
    for (const auto& [name, average] : state.named()) averages.emplace(name, average);
  }

  void forecast_memory(MemoryForecast& forecast, State&) const {
    std::unordered_set<const void*> trained;
    for (const UpdateView& view : forecast.run.updates())
      for (const at::Tensor& parameter : view.parameters)
        if (is_averaged(view) && forecast.trains(parameter)) trained.insert(parameter.unsafeGetTensorImpl());
    const auto add = [&](const at::Tensor& weight) {
      const auto bytes_each = c10::elementSize(detail::AverageMemory::average_type(weight));
      if (!offload || weight.is_cpu())
        forecast.averages += weight.numel() * static_cast<std::int64_t>(bytes_each);
    };
    for (const auto& [name, weight] : detail::weights_by_name(model_of(forecast.run), /*buffers=*/false))
      if (trained.erase(weight.unsafeGetTensorImpl()) > 0) add(weight);
    if (!average_buffers) return;
    for (const auto& [name, buffer] : detail::weights_by_name(model_of(forecast.run), /*buffers=*/true))
      if (buffer.is_floating_point() || buffer.is_complex()) add(buffer);
  }

  void state_dict(StateDict& dict, State& state) const { state.save(dict); }
  void load_state_dict(const StateDict& dict, State& state) const { state.load(dict); }

 private:
  static const Module& model_of(const Run& run) { return run.model(); }

  [[nodiscard]] double share(std::int64_t count) const {
    return detail::visit_held([&](const auto& chosen) { return chosen.share(count); }, rule);
  }
  [[nodiscard]] bool is_averaged(const UpdateView& view) const {
    return update.empty() || view.name == update;
  }
  [[nodiscard]] bool is_due(std::int64_t applied) const {
    return applied > begin_after && (applied - begin_after) % every == 0;
  }

  [[nodiscard]] std::size_t first_averaged(const Run& run) const {
    std::size_t first = 0;
    while (!is_averaged(run.updates()[first])) ++first;
    return first;
  }

  void admit(const UpdateContext& context, State& state) const {
    if (update.empty())
      for (std::size_t i = context.index() + 1; i < context.run.updates().size(); ++i)
        for (const at::Tensor& parameter : context.run.updates()[i].parameters)
          state.exclude(context.index(), parameter);
    state.admit(context.index(), context.view().parameters, model_of(context.run));
  }

  void check_options() const {
    if (const Ema* ema = std::get_if<Ema>(&rule); ema && !(ema->decay >= 0 && ema->decay < 1))
      throw UsageError(message("Ema needs a decay in [0, 1), got ", ema->decay));
    if (begin_after < 0)
      throw UsageError(message("AverageWeights's `begin_after` counts updates from 0, got ", begin_after));
    if (every < 1) throw UsageError(message("AverageWeights's `every` must be at least 1, got ", every));
  }

  void check_update(const Run& run) const {
    if (update.empty()) return;
    std::string names;
    for (const UpdateView& view : run.updates()) {
      if (view.name == update) return;
      names += (names.empty() ? "'" : ", '") + view.name + "'";
    }
    throw UsageError(message("AverageWeights is to average the update '", update,
                             "', which the Trainer does not list; there is ", names));
  }
};

using AverageWeights = BasicAverageWeights<torch::nn::Module>;

}  // namespace looptorch
