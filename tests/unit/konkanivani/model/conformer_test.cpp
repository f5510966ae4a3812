// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"

using namespace konkanivani_test;
using konkanivani::Positions;

TEST_CASE("The feed-forward layer adds half of LayerNorm, linear, SiLU, linear") {
  const torch::NoGradGuard no_grad;
  const auto config = tiny_config();
  konkanivani::FeedForward layer(config);
  const auto p = layer->named_parameters();
  for (const auto& item : p) item.value().data().normal_();
  const auto x_BTD = at::randn({2, 3, 16});
  const auto normal = at::layer_norm(x_BTD, {16}, p["norm.weight"], p["norm.bias"]);
  const auto inner = at::silu(at::linear(normal, p["up.weight"], p["up.bias"]));
  CHECK(inner.size(2) == 32);
  const auto wanted = x_BTD + 0.5 * at::linear(inner, p["down.weight"], p["down.bias"]);
  CHECK(largest_difference(layer(x_BTD), wanted) < 1e-4);
}

TEST_CASE("The convolution module is its five layers, with silence in place of padding") {
  const torch::NoGradGuard no_grad;
  konkanivani::ConvolutionModule module(tiny_config());
  module->eval();
  const auto p = module->named_parameters(), b = module->named_buffers();
  for (const auto& item : p) item.value().data().normal_(0, 0.5);
  b["batch_norm.running_mean"].normal_();
  b["batch_norm.running_var"].uniform_(0.5, 2);
  const auto x_BTD = at::randn({2, 7, 16});
  const auto valid_BT = konkanivani::valid_places(ids({7, 4}), 7);
  const auto normal = at::layer_norm(x_BTD, {16}, p["norm.weight"], p["norm.bias"]);
  const auto gated_BTD = at::glu(at::linear(normal, p["pointwise_in.weight"], p["pointwise_in.bias"]), -1);
  const auto mixed_BDT = at::conv1d((gated_BTD * valid_BT.unsqueeze(2)).transpose(1, 2),
                                    p["depthwise.weight"], p["depthwise.bias"], 1, 2, 1, 16);
  const auto even_BDT =
      at::batch_norm(mixed_BDT, p["batch_norm.weight"], p["batch_norm.bias"], b["batch_norm.running_mean"],
                     b["batch_norm.running_var"], false, 0.1, 1e-5, false);
  const auto wanted =
      at::linear(at::silu(even_BDT).transpose(1, 2), p["pointwise_out.weight"], p["pointwise_out.bias"]);
  CHECK(largest_difference(module(x_BTD, valid_BT), wanted) < 1e-4);
}

TEST_CASE("A block's valid frames do not depend on the padding after them, in training too") {
  for (const auto positions : {Positions::sinusoidal, Positions::relative}) {
    auto config = tiny_config();
    config.positions = positions;
    torch::manual_seed(5);
    konkanivani::ConformerBlock block(config);
    const auto x_BTD = at::randn({2, 6, 16});
    const auto run = [&](int64_t frames, double padding) {
      auto wide = at::full({2, frames, 16}, padding);
      wide[0].narrow(0, 0, 6).copy_(x_BTD[0]);
      wide[1].narrow(0, 0, 2).copy_(x_BTD[1].narrow(0, 0, 2));
      const auto distances = positions == Positions::relative
                                 ? konkanivani::distance_table(frames, 16, x_BTD.options())
                                 : at::Tensor();
      const auto y = block(wide, konkanivani::valid_places(ids({6, 2}), frames), distances);
      return at::cat({y[0].narrow(0, 0, 6), y[1].narrow(0, 0, 2)});
    };
    for (const bool training : {true, false}) {
      block->train(training);
      CHECK(largest_difference(run(6, 0), run(11, 50)) < 1e-4);
    }
  }
}

TEST_CASE("A block is its parts one after the other: half, attention, convolution, half, norm") {
  const torch::NoGradGuard no_grad;
  konkanivani::ConformerBlock block(tiny_config());
  block->eval();
  const auto children = block->named_children();
  const auto norm = [&](const char* name, const at::Tensor& x) {
    return children[name]->as<torch::nn::LayerNorm>()->forward(x);
  };
  auto& attention = *children["attention"]->as<konkanivani::Attention>();
  const auto valid_BT = konkanivani::valid_places(ids({5, 3}), 5);
  const auto input_BTD = at::randn({2, 5, 16});
  auto x_BTD = children["first_half"]->as<konkanivani::FeedForward>()->forward(input_BTD);
  const auto normal_BTD = norm("attention_norm", x_BTD);
  x_BTD = x_BTD +
          attention.forward(normal_BTD, attention.project(normal_BTD), valid_BT.unsqueeze(1).unsqueeze(1));
  x_BTD = x_BTD + children["convolution"]->as<konkanivani::ConvolutionModule>()->forward(x_BTD, valid_BT);
  x_BTD = norm("norm", children["second_half"]->as<konkanivani::FeedForward>()->forward(x_BTD));
  CHECK(largest_difference(block(input_BTD, valid_BT, at::Tensor()), x_BTD) < 1e-5);
}
