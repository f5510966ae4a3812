// SPDX-License-Identifier: MIT
// Checks model and optimizers when a fit or a loop of `step` begins. Warns once per Trainer of a model in
// eval mode, and of parameters that no update trains. Warns if a fit continues an epoch over a range of
// another size. Refuses an optimizer that rounds bf16 weights to the nearest: updates below half the spacing
// of bf16 numbers would be lost without a message.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/base/text/first_few.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/open_window.hpp>
#include <looptorch/optim/interface/small_updates.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace looptorch::detail {

/// Warns, once per Trainer and on one rank, of a model in eval mode. Ignores the mode of modules within the
/// model: eval mode keeps a BatchNorm's statistics fixed.
template <class Engine>
void warn_once_of_eval_mode(Engine& engine) {
  if (engine.takes_warning_of_eval_mode() && engine.ranks().leads())
    TORCH_WARN(
        "looptorch: training begins with the model in eval mode, in which dropout does nothing and BatchNorm "
        "learns no statistics: call model->train() before, as after an evaluation of your own. See "
        "docs/errors.md#eval-mode");
}

/// Warns, on one rank, of a fit that continues an epoch over a range of another size than the epoch began
/// with: the fit skips as many batches as the epoch had so far, which the run may not have seen.
template <class Engine>
void warn_of_another_range(Engine& engine, const Progress& before) {
  const auto& had = before.batches_per_epoch;
  const auto& has = engine.progress().batches_per_epoch;
  if (before.batch == 0 || !had || !has || *had == *has || !engine.ranks().leads()) return;
  TORCH_WARN("looptorch: this fit continues an epoch after ", before.batch, " of ", *had,
             " batches, but its range has ", *has, " batches: it skips the first ",
             std::min(before.batch, *has),
             ". For other data end the earlier fit by `epochs`, or begin with a "
             "Trainer of its own. See docs/errors.md#another-range");
}

// ---- Parameters that no update trains ----

/// Returns the names of parameters that require gradients and that no Trainer of this process trains: the
/// networks of a GAN may have a Trainer each.
[[nodiscard]] inline std::vector<std::string> untrained_names(const Run& run, const OpenWindow& window) {
  std::unordered_set<const void*> trained;
  for (const UpdateView& view : run.updates())
    for (const at::Tensor& parameter : view.parameters) trained.insert(parameter.unsafeGetTensorImpl());
  std::vector<std::string> names;
  for (const NamedParameter& parameter : run.named_parameters())
    if (parameter.tensor.requires_grad() && !trained.count(parameter.tensor.unsafeGetTensorImpl()) &&
        !window.another_trains(parameter.tensor))
      names.push_back(parameter.names.front());
  return names;
}

/// Warns once per Trainer, on one rank, after policies have frozen parameters.
template <class Engine>
void warn_once_of_untrained(Engine& engine) {
  if (!engine.takes_warning_of_untrained() || !engine.ranks().leads()) return;
  const std::vector<std::string> names = untrained_names(engine.run(), engine.window().open);
  if (!names.empty())
    TORCH_WARN(
        "looptorch: no update trains ", names.size(),
        " of the model's parameters that require gradients: ", first_few(names),
        ". Give them to an optimizer, or freeze them by set_requires_grad(false) or the policy Freeze, which "
        "also saves their part of backward. See docs/errors.md#untrained");
}

// ---- Weights in bf16 ----

/// Throws UsageError for the first bf16 parameter that is trained, now or later.
inline void refuse_lossy_weights(const MemoryForecast& forecast, const std::vector<at::Tensor>& parameters,
                                 const std::string& update, std::string_view optimizer) {
  for (const at::Tensor& parameter : parameters)
    if (parameter.scalar_type() == at::kBFloat16 && forecast.trains(parameter))
      throw UsageError(message(
          "the optimizer of ", update, ", ", optimizer, ", rounds bf16 weights, such as one of shape ",
          parameter.sizes(),
          ", to the nearest, which loses most updates below 0.2 % of a weight: train with AdamWBf16, AdamW8bit or "
          "Adafactor, keep the weights in fp32, or accept it by Update{optimizer, objective, {.lossy_weights = "
          "true}}"));
}

/// Checks all updates, once policies have frozen parameters.
template <class Engine>
void refuse_lossy_weights(Engine& engine) {
  MemoryForecast forecast{engine.run(), engine.window_length()};
  engine.stack().template run<forecast_memory_hook>(forecast);
  for_each_index<Engine::kUpdates>([&](auto i) {
    auto& update = engine.template update<i>();
    using Optimizer = std::remove_cvref_t<decltype(*update.optimizer)>;
    if constexpr (!std::is_base_of_v<KeepsSmallUpdates, Optimizer>) {
      const UpdateView& view = engine.run().updates()[i];
      const bool keeps_small =
          dynamic_cast<const KeepsSmallUpdates*>(update.optimizer.get());  // AnyOptimizer's
      if (!keeps_small && !update.options.lossy_weights)
        refuse_lossy_weights(forecast, view.parameters, view.name, type_of(*update.optimizer));
    }
  });
}

}  // namespace looptorch::detail
