// SPDX-License-Identifier: MIT
// A feed-forward layer as one node of autograd: the bits of the layers one by one, what it saves, and when
// the layers are called one by one.
// Runs on every device.
// Tests layers: dropout_part
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora.hpp>
#include <looptorch/layers/feed_forward.hpp>
#include <looptorch/layers/linear.hpp>
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/policies/autocast.hpp>

#include "support/place.hpp"
#include "unit/layers/support/second_gradients.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lt = looptorch;
using lt::testing::place, lt::testing::placed;

namespace {

constexpr std::int64_t kWidth = 8;

template <class Linear = lt::Linear>
struct FeedForwardImpl : torch::nn::Module {
  explicit FeedForwardImpl(bool has_bias = true)
      : norm(torch::nn::LayerNormOptions({kWidth})),
        up(torch::nn::LinearOptions(kWidth, 4 * kWidth).bias(has_bias)),
        down(torch::nn::LinearOptions(4 * kWidth, kWidth).bias(has_bias)) {
    register_module("norm", norm), register_module("up", up), register_module("down", down);
    torch::nn::init::normal_(norm->weight), torch::nn::init::normal_(norm->bias);
    this->to(place());
  }
  at::Tensor by_node(const at::Tensor& x) { return lt::feed_forward(x, norm, up, down, options); }
  at::Tensor by_layers(const at::Tensor& x) {
    const auto drop = [&](const at::Tensor& y) { return at::dropout(y, options.dropout, /*train=*/true); };
    const at::Tensor hidden = up->forward(norm(x));
    const bool is_silu = options.activation == lt::Activation::silu;
    const at::Tensor branch = drop(down->forward(drop(is_silu ? at::silu(hidden) : at::gelu(hidden))));
    return options.scale == 1 ? x + branch : x + branch * options.scale;
  }

  torch::nn::LayerNorm norm;
  Linear up, down;
  lt::FeedForwardOptions options;
};

/// A Conformer's.
const lt::FeedForwardOptions conformer{.activation = lt::Activation::silu, .dropout = 0.3, .scale = 0.5};

bool is_node(const at::Tensor& y) { return y.grad_fn() && y.grad_fn()->name() == "FeedForwardBackward"; }

struct Case {
  std::vector<std::int64_t> sizes = {2, 3, kWidth};
  std::string trained = "xnud";  ///< The input, the norm, the layers up and down.
  bool has_bias = true, casts = false;
  std::optional<lt::CheckpointMode> mode = std::nullopt;
  at::ScalarType type = at::kFloat;
  lt::FeedForwardOptions options = {};
  bool is_node = true;
};

/// Returns the output, and the gradients of input and parameters.
std::vector<at::Tensor> results(const Case& of, bool by_node) {
  torch::manual_seed(1);
  FeedForwardImpl<> layer(of.has_bias);
  layer.to(of.type);
  layer.options = of.options;
  const auto trains = [&](char letter) { return of.trained.find(letter) != std::string::npos; };
  const std::vector<std::pair<char, torch::nn::Module*>> parts{
      {'n', layer.norm.get()}, {'u', layer.up.get()}, {'d', layer.down.get()}};
  for (const auto& [letter, part] : parts)
    for (auto& parameter : part->parameters()) parameter.set_requires_grad(trains(letter));
  const at::Tensor x = placed(at::randn(of.sizes, of.type)).set_requires_grad(trains('x'));
  at::Tensor y;
  {
    std::optional<lt::AutocastScope> autocast;
    if (of.casts) autocast.emplace(place().type(), at::kBFloat16);
    const auto run = [&](const at::Tensor& x) { return by_node ? layer.by_node(x) : layer.by_layers(x); };
    y = of.mode ? lt::checkpoint({.mode = *of.mode}, run, x) : run(x);
  }
  const bool is_drawn_again = of.options.dropout > 0 && of.mode == lt::CheckpointMode::light;
  CHECK(is_node(y) == (by_node && of.is_node && !is_drawn_again));
  y.square().sum().backward();
  std::vector<at::Tensor> all{y, x.grad()};
  for (const auto& parameter : layer.parameters()) all.push_back(parameter.grad());
  return all;
}

void check_equal(const Case& of) {
  CAPTURE(of.sizes, of.trained, of.has_bias, of.casts, of.mode.has_value(), of.options.dropout);
  Case plain = of;
  plain.mode.reset();
  const auto found = results(of, true), expected = results(plain, false);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (!found[i].defined()) continue;
    CHECK(found[i].scalar_type() == expected[i].scalar_type());
    CHECK(at::equal(found[i], expected[i]));
  }
}

}  // namespace

TEST_CASE("feed_forward has the bits of its layers, whatever is trained, recomputed, and under autocast") {
  using enum lt::CheckpointMode;
  for (const bool casts : {false, true})
    for (const auto mode :
         {std::optional<lt::CheckpointMode>(), std::optional(light), std::optional(recompute)})
      for (const char* trained : {"xnud", "x", "n", "u", "d", "nud", "xd", "xu"})
        for (const auto& options : {lt::FeedForwardOptions{}, conformer})
          check_equal({.trained = trained, .casts = casts, .mode = mode, .options = options});
  check_equal({.has_bias = false});
  check_equal({.has_bias = false, .casts = true});
  check_equal({.sizes = {5, kWidth}});
  check_equal({.sizes = {2, 2, 3, kWidth}, .mode = light});
  check_equal({.mode = light, .type = at::kDouble});
  check_equal({.mode = light, .type = at::kBFloat16});
  check_equal({.mode = recompute, .type = at::kBFloat16, .options = conformer});
  check_equal({.has_bias = false, .mode = light, .options = {.activation = lt::Activation::silu}});
  check_equal({.options = {.dropout = 0.9, .scale = -2}});
  check_equal({.options = {.dropout = 1}, .is_node = false});
}

TEST_CASE("feed_forward's node can be differentiated twice, light too") {
  const auto second = [](bool by_node, lt::CheckpointMode mode, const lt::FeedForwardOptions& options) {
    torch::manual_seed(1);
    FeedForwardImpl<> layer;
    layer.to(at::kDouble);
    layer.options = options;
    const at::Tensor x = placed(at::randn({3, kWidth}, at::kDouble)).set_requires_grad(true);
    const auto run = [&](const at::Tensor& x) { return by_node ? layer.by_node(x) : layer.by_layers(x); };
    const at::Tensor y = lt::checkpoint({.mode = mode}, run, x);
    return looptorch::testing::second_gradients(y.pow(3).sum(), x, layer.parameters());
  };
  using enum lt::CheckpointMode;
  const auto check = [&](lt::CheckpointMode mode, const lt::FeedForwardOptions& options) {
    const auto expected = second(false, off, options), found = second(true, mode, options);
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 1e-9, 1e-9));
  };
  for (const auto mode : {off, light}) check(mode, {});
  check(off, conformer);
  check(light, {.activation = lt::Activation::silu});
}

TEST_CASE("feed_forward's node can be differentiated twice where neither input nor norm is trained") {
  for (const auto mode : {lt::CheckpointMode::off, lt::CheckpointMode::light})
    for (const bool up_learns : {true, false}) {
      const auto second = [&](bool by_node) {
        torch::manual_seed(1);
        FeedForwardImpl<> layer;
        for (auto& parameter : layer.norm->parameters()) parameter.set_requires_grad(false);
        for (auto& parameter : layer.up->parameters()) parameter.set_requires_grad(up_learns);
        const auto run = [&](const at::Tensor& x) { return by_node ? layer.by_node(x) : layer.by_layers(x); };
        const at::Tensor y = lt::checkpoint({.mode = mode}, run, placed(at::randn({3, kWidth})));
        const at::Tensor& first = up_learns ? layer.up->weight : layer.down->bias;
        return looptorch::testing::second_gradients(y.pow(3).sum(), first, {layer.down->weight});
      };
      const auto expected = second(false), found = second(true);
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 1e-4, 1e-4));
    }
}

TEST_CASE("feed_forward calls the layers without gradients, with adapters, and for what no node takes") {
  FeedForwardImpl<> layer;
  const at::Tensor x = placed(at::randn({2, 3, kWidth}));
  const auto check_layers = [&](const at::Tensor& x) {
    const at::Tensor y = layer.by_node(x);
    CHECK_FALSE(is_node(y));
    CHECK(at::equal(y, layer.by_layers(x)));
  };
  CHECK(is_node(layer.by_node(x)));
  check_layers(placed(at::randn({2, kWidth, 3})).transpose(1, 2));  // gaps between rows
  check_layers(x[0][0]);
  check_layers(x.slice(0, 0, 0));
  CHECK_THROWS(layer.by_node(x.to(at::kDouble)));
  CHECK_THROWS(layer.by_node(x.slice(2, 0, 4)));
  {
    const at::NoGradGuard no_gradients;
    check_layers(x);
  }
  FeedForwardImpl<lt::Lora<lt::Linear>> adapted;
  CHECK(is_node(adapted.by_node(x)));
  adapted.down->attach({.rank = 2});
  CHECK_FALSE(is_node(adapted.by_node(x)));
  CHECK(at::equal(adapted.by_node(x), adapted.by_layers(x)));
}

TEST_CASE("feed_forward's node refuses a second backward, and tensors that changed before backward") {
  FeedForwardImpl<> layer;
  const at::Tensor x = placed(at::randn({2, 3, kWidth}));
  const auto loss_of = [&](lt::CheckpointMode mode) {
    return lt::checkpoint(
               {.mode = mode}, [&](const at::Tensor& x) { return layer.by_node(x); }, x)
        .sum();
  };
  for (const auto mode : {lt::CheckpointMode::off, lt::CheckpointMode::light}) {
    at::Tensor loss = loss_of(mode);
    loss.backward();
    CHECK_THROWS(loss.backward());
    for (const at::Tensor& changed : {x, layer.up->weight, layer.norm->weight}) {
      loss = loss_of(mode);
      {
        const at::NoGradGuard no_gradients;
        changed.add_(1);
      }
      CHECK_THROWS(loss.backward());
    }
  }
}
