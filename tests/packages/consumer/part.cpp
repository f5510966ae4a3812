// SPDX-License-Identifier: MIT
// Uses a part of looptorch, as static and as shared library of one program, and as a program. Returns 0 if all is well.
#include <looptorch/optim/fused_sgd.hpp>

#include <ATen/ops/ones.h>

#include <vector>

int PART() {
  auto parameter = at::ones({4}).set_requires_grad(true);
  looptorch::FusedSGD optimizer(std::vector<at::Tensor>{parameter}, {.lr = 0.25});
  parameter.sum().backward();
  optimizer.step();
  return parameter.sum().item<float>() == 3 ? 0 : 1;
}
