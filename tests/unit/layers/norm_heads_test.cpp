// SPDX-License-Identifier: MIT
// A layer norm and attention's projections as one node of autograd: the bits of joint_heads after the norm,
// and when that is called.
// Runs on every device.
// Tests layers: norm_part
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora.hpp>
#include <looptorch/layers/linear.hpp>
#include <looptorch/layers/norm_heads.hpp>
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/policies/autocast.hpp>

#include "support/place.hpp"
#include "unit/layers/support/second_gradients.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using lt::testing::place, lt::testing::placed;

namespace {

constexpr std::int64_t kHeads = 2;

/// Of 160 numbers, queries, keys and values are more than a CPU joins.
template <class Linear = lt::Linear>
struct ProjectionsImpl : torch::nn::Module {
  explicit ProjectionsImpl(std::int64_t width = 8, bool key_has_bias = false)
      : norm(torch::nn::LayerNormOptions({width})),
        q(torch::nn::LinearOptions(width, width)),
        k(torch::nn::LinearOptions(width, width).bias(key_has_bias)),
        v(torch::nn::LinearOptions(width, width)) {
    register_module("norm", norm), register_module("q", q), register_module("k", k), register_module("v", v);
    torch::nn::init::normal_(norm->weight), torch::nn::init::normal_(norm->bias);
    this->to(place());
  }
  std::array<at::Tensor, 3> by_node(const at::Tensor& x) { return lt::norm_heads(x, kHeads, norm, q, k, v); }
  std::array<at::Tensor, 3> by_layers(const at::Tensor& x) {
    return lt::joint_heads(norm(x), kHeads, q, k, v);
  }

  torch::nn::LayerNorm norm;
  Linear q, k, v;
};

bool is_node(const at::Tensor& y) { return y.grad_fn() && y.grad_fn()->name() == "NormHeadsBackward"; }

struct Case {
  std::int64_t width = 8;
  std::string trained = "xnqkv";
  bool casts = false;
  std::optional<lt::CheckpointMode> mode = std::nullopt;
  std::string used = "qkv";  ///< The outputs that the loss is made of.
};

std::vector<at::Tensor> results(const Case& of, bool by_node) {
  torch::manual_seed(1);
  ProjectionsImpl<> layer(of.width);
  const std::vector<std::pair<char, torch::nn::Module*>> parts{
      {'n', layer.norm.get()}, {'q', layer.q.get()}, {'k', layer.k.get()}, {'v', layer.v.get()}};
  for (const auto& [letter, part] : parts)
    for (auto& parameter : part->parameters())
      parameter.set_requires_grad(of.trained.find(letter) != std::string::npos);
  const at::Tensor x =
      placed(at::randn({2, 3, of.width})).set_requires_grad(of.trained.find('x') != std::string::npos);
  std::array<at::Tensor, 3> y;
  {
    std::optional<lt::AutocastScope> autocast;
    if (of.casts) autocast.emplace(place().type(), at::kBFloat16);
    const auto run = [&](const at::Tensor& x) { return by_node ? layer.by_node(x) : layer.by_layers(x); };
    y = of.mode ? lt::checkpoint({.mode = *of.mode}, run, x) : run(x);
  }
  CHECK(is_node(y[0]) == by_node);
  at::Tensor loss;
  for (std::size_t i = 0; i < 3; ++i) {
    if (of.used.find("qkv"[i]) == std::string::npos) continue;
    const at::Tensor term = y[i].to(at::kFloat).pow(2 + static_cast<double>(i)).sum();
    loss = loss.defined() ? loss + term : term;
  }
  loss.backward();
  for (const auto& [letter, part] : parts)  // no zeros, by which an optimizer would decay a weight
    if (letter != 'n' && of.used.find(letter) == std::string::npos)
      for (const auto& parameter : part->parameters()) CHECK_FALSE(parameter.grad().defined());
  std::vector<at::Tensor> all{y[0], y[1], y[2], x.grad()};
  for (const auto& parameter : layer.parameters()) all.push_back(parameter.grad());
  return all;
}

void check_equal(const Case& of) {
  CAPTURE(of.width, of.trained, of.casts, of.mode.has_value(), of.used);
  Case plain = of;
  plain.mode.reset();
  const auto found = results(of, true), expected = results(plain, false);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (!found[i].defined()) continue;
    CHECK(found[i].scalar_type() == expected[i].scalar_type());
    CHECK(found[i].strides() == expected[i].strides());
    CHECK(at::equal(found[i], expected[i]));
  }
}

}  // namespace

TEST_CASE("norm_heads has the bits of joint_heads after the norm: joined or one by one, recomputed, cast") {
  using enum lt::CheckpointMode;
  for (const std::int64_t width : {8, 160})
    for (const bool casts : {false, true})
      for (const auto mode :
           {std::optional<lt::CheckpointMode>(), std::optional(light), std::optional(recompute)})
        for (const char* trained : {"xnqkv", "x", "n", "qkv", "xq", "xnv", "k"})
          check_equal({.width = width, .trained = trained, .casts = casts, .mode = mode});
  for (const std::int64_t width : {8, 160})
    for (const char* used : {"q", "kv"}) {
      check_equal({.width = width, .used = used});
      check_equal({.width = width, .mode = light, .used = used});
    }
}

TEST_CASE("norm_heads's node can be differentiated twice, light too") {
  const auto second = [](bool by_node, lt::CheckpointMode mode) {
    torch::manual_seed(1);
    ProjectionsImpl<> layer(8, true);
    layer.to(at::kDouble);
    const at::Tensor x = placed(at::randn({2, 3, 8}, at::kDouble)).set_requires_grad(true);
    const auto run = [&](const at::Tensor& x) { return by_node ? layer.by_node(x) : layer.by_layers(x); };
    const auto y = lt::checkpoint({.mode = mode}, run, x);
    return looptorch::testing::second_gradients((y[0].pow(3) + y[1].pow(2) + y[2].sin()).sum(), x,
                                                layer.parameters());
  };
  const auto expected = second(false, lt::CheckpointMode::off);
  for (const auto mode : {lt::CheckpointMode::off, lt::CheckpointMode::light}) {
    const auto found = second(true, mode);
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 1e-9, 1e-9));
  }
}

TEST_CASE("norm_heads calls the layers without gradients, with adapters, and for what no node takes") {
  ProjectionsImpl<> layer;
  const at::Tensor x = placed(at::randn({2, 3, 8}));
  const auto check_layers = [&](const at::Tensor& x) {
    const auto found = layer.by_node(x), expected = layer.by_layers(x);
    CHECK_FALSE(is_node(found[0]));
    for (std::size_t i = 0; i < 3; ++i) CHECK(at::equal(found[i], expected[i]));
  };
  CHECK(is_node(layer.by_node(x)[0]));
  check_layers(placed(at::randn({2, 8, 3})).transpose(1, 2));  // gaps between rows
  check_layers(x.slice(0, 0, 0));
  CHECK_THROWS(layer.by_node(x.to(at::kDouble)));
  CHECK_THROWS(layer.by_node(x.slice(2, 0, 4)));
  CHECK_THROWS(lt::norm_heads(x, 3, layer.norm, layer.q));  // 8 numbers in 3 heads
  {
    const at::NoGradGuard no_gradients;
    check_layers(x);
  }
  ProjectionsImpl<lt::Lora<lt::Linear>> adapted;
  CHECK(is_node(adapted.by_node(x)[0]));
  adapted.v->attach({.rank = 2});
  CHECK_FALSE(is_node(adapted.by_node(x)[0]));
}

TEST_CASE("norm_heads's node refuses a second backward, and tensors that changed before backward") {
  ProjectionsImpl<> layer;
  const at::Tensor x = placed(at::randn({2, 3, 8}));
  const auto loss_of = [&](lt::CheckpointMode mode) {
    const auto run = [&](const at::Tensor& x) { return layer.by_node(x); };
    return lt::checkpoint({.mode = mode}, run, x)[0].sum();
  };
  for (const auto mode : {lt::CheckpointMode::off, lt::CheckpointMode::light}) {
    at::Tensor loss = loss_of(mode);
    loss.backward();
    CHECK_THROWS(loss.backward());
    for (const at::Tensor& changed : {x, layer.q->weight, layer.norm->weight}) {
      loss = loss_of(mode);
      {
        const at::NoGradGuard no_gradients;
        changed.add_(1);
      }
      CHECK_THROWS(loss.backward());
    }
  }
}
