// SPDX-License-Identifier: MIT
// Lists the parameters that each update trains, and those that it must not change. Renews the lists as a
// window begins if the program has changed the groups of an optimizer. Refuses a tied weight that an
// optimizer's groups list several times: any optimizer but looptorch's own would update it several times per
// step.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>
#include <looptorch/optim/state/listed_parameters.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The lists of a Trainer's parameters as of the last `refresh`; its Engine has one. Out of date once
/// `changed` returns true.
class TrainedParameters {
 public:
  explicit TrainedParameters(std::size_t updates) : listed_(updates), outside_(updates) {}

  /// True if a group or a parameter has joined an optimizer, left it, or been replaced.
  [[nodiscard]] bool changed(const std::vector<UpdateView>& updates) const {
    for (std::size_t i = 0; i < updates.size(); ++i)
      if (!listed_[i].match(updates[i].optimizer->param_groups())) return true;
    return false;
  }

  /// Reads the optimizers' groups; `model` has the model's parameters.
  void refresh(std::vector<UpdateView>& updates, const std::vector<at::Tensor>& model) {
    all_ = model, trained_.clear();
    for (std::size_t i = 0; i < updates.size(); ++i) {
      follow(updates[i]);
      const auto& groups = updates[i].optimizer->param_groups();
      remember_rates(updates[i], listed_[i].former(groups));
      updates[i].groups_version += !listed_[i].match(groups);
      listed_[i].refresh(groups);
      trained_.insert(trained_.end(), updates[i].parameters.begin(), updates[i].parameters.end());
    }
    all_.insert(all_.end(), trained_.begin(), trained_.end());
    for (std::size_t i = 0; i < updates.size(); ++i) outside_[i] = without(all_, updates[i].parameters);
  }

  /// Drops the gradients of parameters that joined an update or left one. Keeps those of parameters that left
  /// and that another Trainer trains: `another_trains(parameter)`. Do not call while another Trainer has a
  /// window open on parameters that joined.
  template <class AnotherTrains>
  void drop_stale_gradients(const AnotherTrains& another_trains) {
    std::erase_if(left_, another_trains);
    drop_gradients(std::exchange(left_, {}));
    drop_gradients(std::exchange(joined_, {}));
  }

  /// Returns what this update leaves alone: parameters of other updates, and parameters of the model that no
  /// update trains.
  [[nodiscard]] const std::vector<at::Tensor>& outside(std::size_t update) const { return outside_[update]; }
  [[nodiscard]] const std::vector<at::Tensor>& trained() const { return trained_; }
  /// Returns the parameters that some update trains or the model has.
  [[nodiscard]] const std::vector<at::Tensor>& all() const { return all_; }

 private:
  /// Updates the parameter list of one update. Parameters that left lose their LibTorch optimizer state,
  /// which is keyed by an address that a later parameter might get.
  void follow(UpdateView& view) {
    std::vector<at::Tensor> now = all_parameters(*view.optimizer);
    const std::vector<at::Tensor> left = without(view.parameters, now);
    const std::vector<at::Tensor> joined = without(now, view.parameters);
    for (const at::Tensor& parameter : left) view.optimizer->state().erase(parameter.unsafeGetTensorImpl());
    left_.insert(left_.end(), left.begin(), left.end());
    joined_.insert(joined_.end(), joined.begin(), joined.end());
    view.parameters = std::move(now);
  }

  std::vector<ListedParameters> listed_;
  std::vector<std::vector<at::Tensor>> outside_;
  std::vector<at::Tensor> trained_, all_;
  std::vector<at::Tensor> joined_, left_;  // their gradients are still to be dropped
};

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

/// Throws UsageError if the optimizer would move a weight several times a step. looptorch's own optimizers
/// move a weight once, even if listed twice.
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
