// SPDX-License-Identifier: MIT
// Takes what an update's share of a window has made out of the way while the share is done again for a look,
// and puts it back: gradients, weights and losses, random generators, buffers.
#pragma once

#include <looptorch/base/device/random_states.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/attempt.hpp>
#include <looptorch/loop/step/kept_buffers.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// While it lives, the share stands where it began.
class PutAside {
 public:
  template <class Module>
  PutAside(const Module& model, Attempt& attempt, const UpdateView& view, UpdateWork& work)
      : view_(view),
        work_(work),
        weight_(work.weight),
        losses_(std::exchange(work.losses, {})),
        at_fault_(work.at_fault),
        closure_sum_(work.closure_sum),
        list_(std::exchange(work.gradients, {})) {
    for (const at::Tensor& parameter : view.parameters) gradients_.push_back(parameter.grad());
    buffers_.keep(model.buffers());
    attempt.put_back(view, work);
  }
  ~PutAside() {
    for (std::size_t i = 0; i < gradients_.size(); ++i) view_.parameters[i].mutable_grad() = gradients_[i];
    buffers_.put_back();
    random_.apply();
    work_.weight = weight_;
    work_.losses = std::move(losses_);
    work_.at_fault = at_fault_;
    work_.closure_sum = closure_sum_;
    work_.gradients = std::move(list_);
  }
  PutAside(const PutAside&) = delete;
  PutAside& operator=(const PutAside&) = delete;

 private:
  const UpdateView& view_;
  UpdateWork& work_;
  WindowWeight weight_;
  WindowLosses losses_;
  std::optional<std::size_t> at_fault_;
  at::Tensor closure_sum_;
  std::vector<at::Tensor> list_, gradients_;
  RandomStates random_ = RandomStates::now();
  KeptBuffers buffers_;
};

}  // namespace looptorch::detail
