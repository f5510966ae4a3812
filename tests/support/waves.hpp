// SPDX-License-Identifier: MIT
// A model and a loss with known gradients, to compare clipping with recorded results.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/base/error.hpp>

#include "support/reference.hpp"

namespace reference {

/// A model whose parameter i is wave(i).
struct WavesImpl : torch::nn::Module {
  WavesImpl() {
    for (std::size_t i = 0; i < shapes().size(); ++i)
      register_parameter(looptorch::message("p", i), wave(shapes()[i], static_cast<double>(i)));
  }
};
TORCH_MODULE(Waves);

/// Returns a loss whose gradient is 2 wave(i) in parameter i.
inline at::Tensor loss_with_known_gradients(Waves& waves, const int&) {
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  const auto parameters = waves->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    loss = loss + (parameters[i] * wave(shapes()[i], static_cast<double>(i)) * 2).sum();
  return loss;
}

}  // namespace reference
