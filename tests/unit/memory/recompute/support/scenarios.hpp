// SPDX-License-Identifier: MIT
// Steps with blocks, for any device and type: on the CPU in this folder, and on a device in tests/device.
#pragma once

#include "unit/memory/recompute/support/blocks.hpp"
#include "unit/memory/recompute/support/compare.hpp"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace checkpointed::scenarios {

/// Four blocks with dropout.
inline constexpr auto dropout = [](const auto& call, const at::TensorOptions& options) {
  std::vector<FeedForward> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(on(FeedForward(), options));
  const at::Tensor x = input(options);
  at::Tensor y = x;
  for (const auto& block : blocks) y = call(block, y);
  y.pow(2).mean().backward();
  Tensors results{y, x.grad()};
  for (const auto& block : blocks) {
    CHECK(block->runs == call.runs());
    append(results, gradients(block));
  }
  return results;
};

/// The same under autocast; backward within its scope or after it.
template <bool Within>
inline constexpr auto autocast = [](at::ScalarType type) {
  return [type](const auto& call, const at::TensorOptions& options) {
    const at::DeviceType device = options.device().type();
    // The first weight is used by two blocks: autocast's copy of it is cached for both.
    std::vector<FeedForward> blocks{on(FeedForward(), options), on(FeedForward(), options)};
    blocks.push_back(blocks.front());
    const at::Tensor x = input(options);
    at::Tensor y = x;
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, type);
    at::autocast::increment_nesting();
    for (const auto& block : blocks) y = call(block, y);
    const at::Tensor loss = y.to(at::kFloat).pow(2).mean();
    if (Within) loss.backward();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device, false);
    if (!Within) loss.backward();
    CHECK_FALSE(at::autocast::is_autocast_enabled(device));
    Tensors results{y, x.grad()};
    for (const auto& block : blocks) append(results, gradients(block));
    return results;
  };
};

/// Batch statistics; the same norm is entered by two calls, and backward comes twice.
inline constexpr auto batch_norm = [](const auto& call, const at::TensorOptions& options) {
  const auto block = on(Normalized(), options);
  const at::Tensor x = input(options);
  const at::Tensor y = call(block, call(block, x));
  const at::Tensor loss = y.pow(2).mean();
  loss.backward({}, /*keep_graph=*/true);
  Tensors results = buffers(block);
  loss.backward();
  append(results, {y, x.grad()});
  return append(append(results, gradients(block)), buffers(block));
};

/// What the block returns depends on a buffer that it changes; two steps.
inline constexpr auto spectral_norm = [](const auto& call, const at::TensorOptions& options) {
  const auto block = on(Spectral(), options);
  const at::Tensor x = input(options);
  Tensors results;
  for (int step = 0; step < 2; ++step) {
    const at::Tensor y = call(block, call(block, x));
    y.pow(2).mean().backward();
    append(results, {y, x.grad().clone()});
    append(append(results, gradients(block)), buffers(block));
  }
  CHECK(block->runs == (call.recomputes ? 8 : 4));
  return results;
};

/// Flops in place within the block, on what it made itself.
inline constexpr auto in_place = [](const auto& call, const at::TensorOptions& options) {
  const auto linear = on(torch::nn::Linear(kWidth, kWidth), options);
  const at::Tensor x = input(options);
  const auto block = [linear](const at::Tensor& x) {
    at::Tensor h = linear.ptr()->forward(x);
    h.mul_(2).add_(1);
    h.slice(1, 0, 2).zero_();
    h.relu_();
    at::Tensor mean = torch::zeros({kWidth}, x.options());
    mean.add_(h.mean(0)).sigmoid_();
    return h * mean;
  };
  const at::Tensor y = call(block, x);
  y.pow(2).mean().backward();
  Tensors results{y, x.grad()};
  return append(results, gradients(linear));
};

/// Views as arguments, within the block, and as results.
inline constexpr auto views = [](const auto& call, const at::TensorOptions& options) {
  const at::Tensor x = input(options);
  const auto block = [](const at::Tensor& left, const at::Tensor& right) {
    const at::Tensor h = left.t().matmul(right);
    return std::make_pair(h.exp().view({-1}).slice(0, 0, 4), h.diagonal());
  };
  const at::Tensor base = x * 2;
  const auto [a, b] = call(block, base.slice(1, 0, 4), base.slice(1, 4, 8));
  (a * b).sum().backward();
  return Tensors{a, b, x.grad()};
};

/// Blocks within a block within a block.
template <class Call>
struct NestedImpl : torch::nn::Module {
  explicit NestedImpl(Call call) : call(std::move(call)), blocks(4) {
    for (std::size_t i = 0; i < blocks.size(); ++i) register_module(std::to_string(i), blocks[i]);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto pair = [this](const at::Tensor& x) { return call(blocks[1], call(blocks[0], x)); };
    return call(blocks[3], call(norm, call(blocks[2], call(pair, x))));
  }
  Call call;
  std::vector<FeedForward> blocks;
  Normalized norm;
};

inline constexpr auto nested = [](const auto& call, const at::TensorOptions& options) {
  using Impl = NestedImpl<std::decay_t<decltype(call)>>;
  const auto block = on(Holder<Impl>(std::make_shared<Impl>(call)), options);
  const at::Tensor x = input(options);
  const at::Tensor y = call(block, call(block, x));
  y.pow(2).mean().backward();
  Tensors results{y, x.grad()};
  return append(append(results, gradients(block)), buffers(block));
};

/// A gradient penalty: the result is made of a gradient.
template <class Call>
struct PenalizedImpl : torch::nn::Module {
  explicit PenalizedImpl(Call call) : call(std::move(call)) {
    register_module("norm", norm);
    register_module("block", block);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = call(block, call(norm, x));
    const at::Tensor gradient = torch::autograd::grad({y.pow(2).sum()}, {x}, {}, true, true)[0];
    return gradient.pow(2).sum() + y.sum();
  }
  Call call;
  Normalized norm;
  FeedForward block;
};

inline constexpr auto penalized = [](const auto& call, const at::TensorOptions& options) {
  using Impl = PenalizedImpl<std::decay_t<decltype(call)>>;
  const auto block = on(Holder<Impl>(std::make_shared<Impl>(call)), options);
  const at::Tensor x = input(options);
  const at::Tensor y = call(block, x);
  y.backward();
  Tensors results{y, x.grad()};
  return append(append(results, gradients(block)), buffers(block));
};

/// A penalty on the gradient through three blocks.
inline constexpr auto double_backward = [](const auto& call, const at::TensorOptions& options) {
  std::vector<FeedForward> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(on(FeedForward(), options));
  const at::Tensor x = input(options);
  at::Tensor y = x;
  for (const auto& block : blocks) y = call(block, y);
  const at::Tensor loss = y.pow(2).mean();
  const Tensors first =
      torch::autograd::grad({loss}, {x, blocks[0]->expand->weight}, {}, /*retain_graph=*/true,
                            /*create_graph=*/true);
  const at::Tensor penalty = first[0].pow(2).sum() + first[1].pow(2).sum();
  (loss + penalty).backward();
  Tensors results = append(Tensors{penalty, x.grad()}, first);
  for (const auto& block : blocks) append(results, gradients(block));
  return results;
};

/// One parameter in two blocks, and twice in one.
inline constexpr auto shared_parameters = [](const auto& call, const at::TensorOptions& options) {
  const auto block = on(FeedForward(), options);
  const at::Tensor x = input(options);
  const auto twice = [block](const at::Tensor& x) { return block(block(x)); };
  const at::Tensor y = call(block, call(twice, call(block, x)));
  y.pow(2).mean().backward();
  Tensors results{y, x.grad()};
  return append(results, gradients(block));
};

/// Blocks none or some of whose parameters are trained, on an input that needs a gradient or not.
inline constexpr auto frozen = [](const auto& call, const at::TensorOptions& options) {
  Tensors results;
  for (const bool input_needs : {false, true}) {
    std::vector<FeedForward> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(on(FeedForward(), options));
    for (const at::Tensor& parameter : blocks[0]->parameters()) parameter.set_requires_grad(false);
    for (const at::Tensor& parameter : blocks[2]->parameters()) parameter.set_requires_grad(false);
    blocks[3]->expand->weight.set_requires_grad(false);
    const at::Tensor x = input(options, input_needs);
    at::Tensor y = x;
    for (const auto& block : blocks) y = call(block, y);
    y.pow(2).mean().backward();
    append(results, {y, x.grad()});
    for (const auto& block : blocks) append(results, gradients(block));
  }
  return results;
};

}  // namespace checkpointed::scenarios
