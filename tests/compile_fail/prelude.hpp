// SPDX-License-Identifier: MIT
// A model, an optimizer, an objective and data for the cases in this folder.
#pragma once
#include <looptorch/trainer.hpp>

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <vector>

namespace lt = looptorch;

using Net = torch::nn::Linear;
inline Net net(4, 2);
inline torch::optim::SGD sgd(net->parameters(), 0.1);
inline at::Tensor objective(Net& net, const at::Tensor& batch) { return net(batch).mean(); }
inline std::vector<at::Tensor> data{torch::ones({3, 4})};
