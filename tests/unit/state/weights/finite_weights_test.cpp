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

TEST_CASE("weights in 16 bits are checked, too, and large finite ones pass") {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    torch::nn::Linear net(64, 64);
    net->to(dtype);
    const torch::NoGradGuard no_gradients;
    net->weight.fill_(dtype == at::kHalf ? 60000.0 : 3e38);  // whose sum overflows
    CHECK_NOTHROW(looptorch::require_finite_weights(*net, "tuned"));
    for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      net->weight[0][3] = wrong;
      CHECK_THROWS_WITH(looptorch::require_finite_weights(*net, "tuned"),
                        "tuned: the weights \"weight\" hold NaN or infinity");
    }
  }
}
