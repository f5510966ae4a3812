// SPDX-License-Identifier: MIT
// The blocks that the tests run again. Each counts its runs.
#pragma once

#include "support/precompiled.hpp"

#include <cstdint>
#include <utility>

namespace checkpointed {

constexpr std::int64_t kWidth = 8;

/// A module holder that lambdas can capture and call: it is const as a pointer is.
template <class Impl>
struct Holder : torch::nn::ModuleHolder<Impl> {
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
  Impl* operator->() const { return this->ptr().get(); }
  template <class... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) const {
    return this->ptr()->forward(std::forward<Arguments>(arguments)...);
  }
};

/// x + dropout(project(gelu(expand(normalize(x))))).
struct FeedForwardImpl : torch::nn::Module {
  explicit FeedForwardImpl(double p = 0.2)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        expand(register_module("expand", torch::nn::Linear(kWidth, 2 * kWidth))),
        project(register_module("project", torch::nn::Linear(2 * kWidth, kWidth))),
        dropout(register_module("dropout", torch::nn::Dropout(p))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x + dropout(project(torch::gelu(expand(norm(x)))));
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear expand, project;
  torch::nn::Dropout dropout;
  int runs = 0;
};
using FeedForward = Holder<FeedForwardImpl>;

/// tanh(batch_norm(linear(x))).
struct NormalizedImpl : torch::nn::Module {
  NormalizedImpl()
      : linear(register_module("linear", torch::nn::Linear(kWidth, kWidth))),
        norm(register_module("norm", torch::nn::BatchNorm1d(kWidth))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return torch::tanh(norm(linear(x)));
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  int runs = 0;
};
using Normalized = Holder<NormalizedImpl>;

/// A linear map divided by its largest singular value, estimated by one step of power iteration that goes on
/// from where the last call ended: what the block returns depends on a buffer that it writes to.
struct SpectralImpl : torch::nn::Module {
  SpectralImpl()
      : weight(register_parameter("weight", torch::randn({kWidth, kWidth}))),
        u(register_buffer("u", torch::randn({kWidth}))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    at::Tensor v;
    {
      torch::NoGradGuard no_gradients;
      v = torch::nn::functional::normalize(weight.t().mv(u),
                                           torch::nn::functional::NormalizeFuncOptions().dim(0));
      if (is_training())
        u.copy_(torch::nn::functional::normalize(weight.mv(v),
                                                 torch::nn::functional::NormalizeFuncOptions().dim(0)));
    }
    const at::Tensor sigma = torch::dot(u.clone(), weight.mv(v));
    return torch::tanh(x.matmul(weight.t() / sigma));
  }
  at::Tensor weight, u;
  int runs = 0;
};
using Spectral = Holder<SpectralImpl>;

template <class Module>
[[nodiscard]] Module on(Module holder, const at::TensorOptions& options) {
  holder->to(options.device(), options.dtype().toScalarType());
  return holder;
}

/// [4, kWidth]
[[nodiscard]] inline at::Tensor input(const at::TensorOptions& options, bool requires_grad = true) {
  return torch::randn({4, kWidth}, options).requires_grad_(requires_grad);
}

}  // namespace checkpointed
