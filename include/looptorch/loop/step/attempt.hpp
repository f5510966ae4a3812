// SPDX-License-Identifier: MIT
// What an update's share of a window changes before the update is made, so that the share can be done again:
// random generators, buffers of the model, and the arithmetic of weights. Costs a copy of the generators'
// states and of the buffers a window, and only where a policy has windows done again.
#pragma once

#include <looptorch/loop/resume/random_states.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/loop/step/window_weight.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The state from which an update's share of a window began.
class Attempt {
 public:
  /// Keeps the state, unless it is kept already.
  template <class Module>
  void begin(const Module& model, const UpdateWork& work) {
    if (begun_) return;
    at::NoGradGuard no_gradients;
    random_ = RandomStates::now();
    const std::vector<at::Tensor> buffers = model.buffers();
    buffers_.resize(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      auto& [buffer, copy] = buffers_[i];
      const bool same = copy.defined() && buffer.is_same(buffers[i]) && copy.sizes() == buffers[i].sizes() &&
                        copy.device() == buffers[i].device();
      buffer = buffers[i];
      same ? static_cast<void>(copy.copy_(buffer)) : static_cast<void>(copy = buffer.detach().clone());
    }
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
    work.closure_sum = at::Tensor();
    if (!begun_) return;
    work.weight = weight_;
    random_.apply();
    for (auto& [buffer, copy] : buffers_) buffer.copy_(copy);
  }

  /// Forgets the share, which has been made or abandoned.
  void end() { begun_ = false; }

 private:
  bool begun_ = false;
  RandomStates random_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // the model's, and their copies
  WindowWeight weight_;
};

}  // namespace looptorch::detail
