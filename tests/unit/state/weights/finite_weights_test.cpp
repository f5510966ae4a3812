// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/state/weights/finite_weights.hpp>

#include <torch/torch.h>

#include <limits>

namespace lt = looptorch;

TEST_CASE("Weights that are NaN or infinite are refused by file and name, in parameters and buffers") {
  const torch::NoGradGuard no_grad;
  torch::nn::BatchNorm1d norm(3);
  CHECK_NOTHROW(lt::require_finite_weights(norm, "a.safetensors"));
  norm->running_mean[1] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(lt::require_finite_weights(*norm, "a.safetensors"),
                    "a.safetensors: the weights \"running_mean\" hold NaN or infinity");
  norm->running_mean.zero_();
  norm->weight[2] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(lt::require_finite_weights(norm, "a.safetensors"), lt::StateError);
  norm->to(at::kBFloat16);
  CHECK_THROWS_AS(lt::require_finite_weights(norm, "a.safetensors"), lt::StateError);
}
