// SPDX-License-Identifier: MIT
// Refuses bf16 weights under an optimizer that rounds to the nearest: it loses, without a sign, each update
// that is smaller than half a step of its weight.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/optim/optimizer_state.hpp>
#include <looptorch/optim/small_updates.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace looptorch::detail {

/// Throws UsageError for the first of the parameters in bf16 that is trained, now or later.
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

/// Throws it for all updates, once the policies have frozen what they freeze.
template <class Engine>
void refuse_lossy_weights(Engine& engine) {
  MemoryForecast forecast{engine.run()};
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
