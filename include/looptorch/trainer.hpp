// SPDX-License-Identifier: MIT
// All that a training program names: the Trainer, optimizers that LibTorch lacks, and every policy. Most
// users include only this header. Where the compiler's time counts, include <looptorch/loop.hpp>, the
// policies that are listed and the optimizer instead: that adds two thirds as much to <torch/torch.h>.
#pragma once

#include <looptorch/loop.hpp>
#include <looptorch/optim/fused_adam.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/optim/parameter_groups.hpp>
#include <looptorch/policies.hpp>
