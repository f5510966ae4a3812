// SPDX-License-Identifier: MIT
// Refuses an optimizer that would update a weight several times a step: LibTorch's own go through their lists
// as they are, and a model lists a tied weight under each of its names.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/optim/any_optimizer.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <typeinfo>
#include <unordered_set>
#include <vector>

namespace looptorch::detail {

/// Returns all names that a parameter has in the model, as "encoder.weight, which is also head.weight".
template <class Module>
[[nodiscard]] std::string all_names_of(const Module& model, const at::Tensor& parameter) {
  std::string names;
  for (const auto& item : model.named_parameters())
    if (item.value().is_same(parameter)) names += (names.empty() ? "" : ", which is also ") + item.key();
  return names.empty() ? message("a parameter of shape ", parameter.sizes(), " outside of the model") : names;
}

/// Returns the parameters that an optimizer's groups list several times, each once.
[[nodiscard]] inline std::vector<at::Tensor> listed_again(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> again;
  std::unordered_set<const void*> seen, named;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      const void* const id = parameter.unsafeGetTensorImpl();
      if (!seen.insert(id).second && named.insert(id).second) again.push_back(parameter);
    }
  return again;
}

/// Throws UsageError if the update's optimizer would move a weight several times a step. looptorch's own
/// optimizers move one that is listed twice once.
template <class Module>
void require_listed_once(const UpdateView& view, const Module& model) {
  const auto optimizer = [&] {
    return message("the optimizer of ", view.name, ", ", c10::demangle(typeid(*view.optimizer).name()));
  };
  if (dynamic_cast<const AnyOptimizer*>(view.optimizer)) return;
  std::string names;
  for (const at::Tensor& parameter : listed_again(*view.optimizer))
    names += (names.empty() ? "" : "; ") + all_names_of(model, parameter);
  if (!names.empty())
    throw UsageError(
        message(optimizer(),
                ", lists parameters more than once, and would update them as often in each step: ", names,
                ". Give it each parameter once, or take one of looptorch's optimizers, such as "
                "FusedSGD or FusedAdamW, which update it once"));
}

}  // namespace looptorch::detail
