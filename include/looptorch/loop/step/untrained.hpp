// SPDX-License-Identifier: MIT
// Says which parameters require gradients and are trained by no update, as when a layer was forgotten in the
// optimizer's list. Costs one look at the model's parameters a Trainer.
#pragma once

#include <looptorch/base/first_few.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/open_window.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace looptorch::detail {

/// Returns the names of parameters that require gradients and that neither this run nor another Trainer of
/// the process trains: the players of a GAN may have a Trainer each.
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

/// Says it once a Trainer and on one rank, after policies have frozen what they freeze.
template <class Engine>
void tell_once_of_untrained(Engine& engine) {
  if (!engine.is_first_fit_that_trains() || !engine.ranks().leads()) return;
  const std::vector<std::string> names = untrained_names(engine.run(), engine.window().open);
  if (!names.empty())
    TORCH_WARN(
        "looptorch: no update trains ", names.size(),
        " of the model's parameters that require gradients: ", first_few(names),
        ". Give them to an optimizer, or freeze them by set_requires_grad(false) or the policy Freeze, which "
        "also saves their part of backward. See docs/errors.md#untrained");
}

}  // namespace looptorch::detail
