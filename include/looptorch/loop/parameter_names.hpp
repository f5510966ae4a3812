// SPDX-License-Identifier: MIT
// Gives each parameter of a run a name, which snapshots, resumes and NaN traces use. Also has
// `refuse_complex`, for policies whose kernels take real parameters only.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/update.hpp>

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Names parameters: by the first name in the model, or "outside.N" for a parameter that an update trains and
/// the model does not contain.
class ParameterNames {
 public:
  template <class Module>
  ParameterNames(const Module& model, const std::vector<UpdateView>& updates) {
    for (const auto& item : model.named_parameters())
      names_.emplace(item.value().unsafeGetTensorImpl(), item.key());
    for (const UpdateView& update : updates)
      for (const at::Tensor& parameter : update.parameters) {
        std::string name = message("outside.", outside_.size());
        if (names_.emplace(parameter.unsafeGetTensorImpl(), name).second)
          outside_.emplace(std::move(name), parameter);
      }
  }

  [[nodiscard]] const std::string& of(const at::Tensor& parameter) const {
    return names_.at(parameter.unsafeGetTensorImpl());
  }
  [[nodiscard]] std::vector<std::string> of(const torch::optim::OptimizerParamGroup& group) const {
    std::vector<std::string> names;
    for (const at::Tensor& parameter : group.params()) names.push_back(of(parameter));
    return names;
  }
  [[nodiscard]] const TensorMap& outside() const { return outside_; }

 private:
  std::unordered_map<const void*, std::string> names_;
  TensorMap outside_;
};

/// Throws UsageError, which names the parameter, if an update trains a complex one: kernels that `policy`
/// needs are for real numbers.
inline void refuse_complex(const Run& run, const char* policy) {
  for (const UpdateView& update : run.updates())
    for (const at::Tensor& parameter : update.parameters) {
      if (!parameter.is_complex() || !parameter.requires_grad()) continue;
      std::string name = "one outside of the model";
      for (const NamedParameter& each : run.named_parameters())
        if (each.tensor.is_same(parameter)) name = message('\'', each.names.front(), '\'');
      throw UsageError(message(policy, " is for real parameters, and update '", update.name, "' trains ",
                               name, ", which is ", parameter.scalar_type(), ' ', parameter.sizes(),
                               ": register its at::view_as_real, and call at::view_as_complex in forward"));
    }
}

}  // namespace looptorch::detail
