// SPDX-License-Identifier: MIT
// The module of tests/parity/lora.py, with the same weights.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/adapters/lora.hpp>

#include "support/reference.hpp"

namespace adapted {

inline at::Tensor wave(at::IntArrayRef sizes, double phase) {
  return reference::wave(sizes, phase, torch::kFloat);
}

using Linear = looptorch::Lora<torch::nn::Linear>;

struct InnerImpl : torch::nn::Module {
  InnerImpl() : fc1(register_module("fc1", Linear(7, 7))) {}
  Linear fc1;
};
TORCH_MODULE(Inner);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : fc1(register_module("fc1", Linear(5, 7))),
        inner(register_module("inner", Inner())),
        out(register_module("out", Linear(torch::nn::LinearOptions(7, 3).bias(false)))) {
    const torch::NoGradGuard no_grad;
    const char* const names[] = {"fc1.bias", "fc1.weight", "inner.fc1.bias", "inner.fc1.weight",
                                 "out.weight"};
    double phase = 0;
    for (const char* name : names) {
      at::Tensor parameter = named_parameters()[name];
      parameter.copy_(wave(parameter.sizes(), phase++));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(inner->fc1(torch::tanh(fc1(x))))); }
  Linear fc1;
  Inner inner;
  Linear out;
};
TORCH_MODULE(Net);

}  // namespace adapted
