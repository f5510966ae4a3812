// SPDX-License-Identifier: MIT
// What an update's share of a window changes before the update is made, so that the share can be done again:
// random generators, buffers of the model, and the arithmetic of weights. Costs a copy of the generators'
// states and of the buffers a window, and only where a policy has windows done again.
#pragma once

#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/kept_buffers.hpp>
#include <looptorch/loop/step/kept_generators.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/loop/step/window_weight.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <vector>

namespace looptorch::detail {

/// The state from which an update's share of a window began.
class Attempt {
 public:
  /// Keeps the state, unless it is kept already.
  void begin(const std::vector<at::Tensor>& buffers, const UpdateWork& work) {
    if (begun_) return;
    generators_.keep();
    buffers_.keep(buffers);
    weight_ = work.weight;
    begun_ = true;
  }

  /// Puts everything back, and drops gradients and losses of the share.
  void put_back(const UpdateView& view, UpdateWork& work) {
    at::NoGradGuard no_gradients;
    drop_gradients(view.parameters);
    work.gradients.clear();
    work.losses.clear();
    work.at_fault.reset();
    work.overflowed = work.loss_overflowed = false;
    work.closure_sum = at::Tensor();
    if (!begun_) return;
    work.weight = weight_;
    generators_.put_back();
    buffers_.put_back();
  }

  /// Forgets the share, which has been made or abandoned.
  void end() { begun_ = false; }

 private:
  bool begun_ = false;
  KeptGenerators generators_;
  KeptBuffers buffers_;
  WindowWeight weight_;
};

}  // namespace looptorch::detail
