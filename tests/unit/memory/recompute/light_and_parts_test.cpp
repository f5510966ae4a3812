// SPDX-License-Identifier: MIT
// CheckpointMode::light, which keeps products and computes the rest again; and blocks that run on one part of
// their samples after the other.
// Tests memory/recompute: checkpointed_call
#include <looptorch/layers/feed_forward.hpp>
#include <looptorch/layers/linear.hpp>
#include <looptorch/layers/norm_heads.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/policies/checkpointed.hpp>
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "support/operators_called.hpp"
#include "unit/memory/recompute/support/live_bytes.hpp"
#include "unit/memory/recompute/support/scenarios.hpp"

#include <tuple>

using namespace checkpointed;

namespace {

constexpr std::int64_t kMany = 4096;

/// A layer of two products, with dropout and GELU around them.
struct GatedImpl : torch::nn::Module {
  GatedImpl() { register_module("in", in), register_module("out", out); }
  at::Tensor forward(const at::Tensor& x) {
    const auto product = [this](const at::Tensor& x) { return at::linear(x, in->weight, in->bias); };
    return x + at::linear(at::gelu(torch::dropout(lt::keep_product(product, x.sin()), 0.1, dropout)),
                          out->weight);
  }
  torch::nn::Linear in{kWidth, 4 * kWidth}, out{torch::nn::LinearOptions(4 * kWidth, kWidth).bias(false)};
  bool dropout = true;
};
TORCH_MODULE(Gated);

/// A Transformer layer whose nodes recompute by themselves.
struct TransformerImpl : torch::nn::Module {
  TransformerImpl() {
    for (auto* layer : {&q, &k, &v, &out, &up, &down})
      register_module("linear" + std::to_string(children().size()), *layer);
    register_module("first", first), register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto kernel = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return at::scaled_dot_product_attention(q, k, v);
    };
    const auto heads = lt::norm_heads(x, 2, first, q, k, v);
    const at::Tensor attended = lt::keep(kernel, heads[0], heads[1], heads[2]);
    const auto merge = [&](const at::Tensor& attended, const at::Tensor& x) {
      return lt::merge_heads(attended, out, x);
    };
    return lt::feed_forward(lt::keep_product(merge, attended, x), second, up, down);
  }
  lt::Linear q{kWidth, kWidth}, k{kWidth, kWidth}, v{kWidth, kWidth}, out{kWidth, kWidth},
      up{kWidth, 4 * kWidth}, down{4 * kWidth, kWidth};
  torch::nn::LayerNorm first{torch::nn::LayerNormOptions({kWidth})},
      second{torch::nn::LayerNormOptions({kWidth})};
};
TORCH_MODULE(Transformer);

/// Two products: the second reads what is kept of the first, the first what is computed again.
struct TwoProductsImpl : torch::nn::Module {
  TwoProductsImpl() { register_module("in", in), register_module("out", out); }
  at::Tensor forward(const at::Tensor& x) {
    const auto first = [this](const at::Tensor& x) { return in(x); };
    const auto second = [this](const at::Tensor& x) { return out(x); };
    return lt::keep_product(second, lt::keep_product(first, x.sin()));
  }
  torch::nn::Linear in{kWidth, kWidth}, out{kWidth, kWidth};
};
TORCH_MODULE(TwoProducts);

/// A product of a view of its argument, and an operation that no gradient needs.
struct OfArgumentImpl : torch::nn::Module {
  OfArgumentImpl() { register_module("in", in); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor shift = x.detach().cos();
    const auto product = [this](const at::Tensor& x) { return at::linear(x.flatten(0, 1), in->weight); };
    return lt::keep_product(product, x).view_as(x) + shift;
  }
  torch::nn::Linear in{torch::nn::LinearOptions(kWidth, kWidth).bias(false)};
};
TORCH_MODULE(OfArgument);

template <class Layer>
at::Tensor through(std::vector<lt::Checkpointed<Layer>>& layers, at::Tensor x,
                   const lt::CheckpointOptions& options) {
  for (auto& layer : layers) {
    layer->checkpoint = options;
    x = layer(x);
  }
  return x;
}

/// Returns the gradients of the input and of all parameters, and clears those.
template <class Layer>
Tensors differentiate(std::vector<lt::Checkpointed<Layer>>& layers, const at::Tensor& x,
                      const lt::CheckpointOptions& options) {
  torch::manual_seed(3);
  const at::Tensor leaf = x.detach().clone().requires_grad_();
  through(layers, leaf, options).square().sum().backward();
  Tensors all{leaf.grad()};
  for (auto& layer : layers)
    for (at::Tensor& parameter : layer->parameters()) {
      all.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
  return all;
}

template <class Layer = Gated>
std::int64_t held(const lt::CheckpointOptions& options, at::IntArrayRef sizes = {kMany, kWidth}) {
  std::vector<lt::Checkpointed<Layer>> layers;
  for (int i = 0; i < 8; ++i) layers.push_back(lt::Checkpointed<Layer>::make());
  const at::Tensor x = torch::randn(sizes).requires_grad_();
  const LiveBytes live;
  const at::Tensor loss = through(layers, x, options).sum();
  return live.now() / (kMany * kWidth * 4);  // activations of one width
}

}  // namespace

TEST_CASE("light: the bits of a plain call, each kept product computed once") {
  std::vector<lt::Checkpointed<Gated>> layers{lt::Checkpointed<Gated>::make(),
                                              lt::Checkpointed<Gated>::make()};
  const at::Tensor x = torch::randn({6, kWidth});
  const auto products = [&](lt::CheckpointMode mode, Tensors& gradients) {
    const OperatorsCalled called;
    gradients = differentiate(layers, x, {.mode = mode});
    return std::pair(called.count("aten::addmm"), called.count("aten::gelu"));
  };
  Tensors plain, light, recomputed;
  const auto of_plain = products(lt::CheckpointMode::off, plain);
  const auto of_light = products(lt::CheckpointMode::light, light);
  const auto of_recomputed = products(lt::CheckpointMode::recompute, recomputed);
  CHECK(of_plain == std::pair(2, 2));
  CHECK(of_light == std::pair(2, 4));
  CHECK(of_recomputed == std::pair(4, 4));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CHECK(same_bits(light[i], plain[i]));
    CHECK(same_bits(recomputed[i], plain[i]));
  }
}

TEST_CASE("light holds inputs and products, a plain call all between them as well") {
  const auto plain = held({.mode = lt::CheckpointMode::off}),
             light = held({.mode = lt::CheckpointMode::light});
  CHECK(held({}) <= 8);
  CHECK(light <= 8 * 5);   // an input and a product of four widths
  CHECK(plain >= 8 * 13);  // input, sine, dropout's mask and result, GELU
}

TEST_CASE("light: a layer whose nodes recompute by themselves is not run again, and holds its products") {
  std::vector<lt::Checkpointed<Transformer>> layers{lt::Checkpointed<Transformer>::make(),
                                                    lt::Checkpointed<Transformer>::make()};
  const at::Tensor x = torch::randn({2, 6, kWidth});
  Tensors plain = differentiate(layers, x, {.mode = lt::CheckpointMode::off});
  const OperatorsCalled called;
  const Tensors light = differentiate(layers, x, {.mode = lt::CheckpointMode::light});
  CHECK(called.count("aten::addmm") == 2 * 4);
  CHECK(called.count("aten::scaled_dot_product_attention") == 2);
  CHECK(called.count("aten::add") == 2 * 3);  // two in forward, and one of gradients
  CHECK(called.count("aten::gelu") == 2 * 2);
  CHECK(called.count("aten::native_layer_norm") == 2 * 4);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(light[i], plain[i]));

  const std::vector<std::int64_t> sizes{2, kMany / 2, kWidth};
  CHECK(held<Transformer>({.mode = lt::CheckpointMode::light}, sizes) <= 8 * 10 + 8);  // and statistics
  CHECK(held<Transformer>({.mode = lt::CheckpointMode::off}, sizes) >= 8 * 16 - 1);
}

TEST_CASE("light: a block is run again before one of its parameters is updated in backward") {
  struct Batch {
    at::Tensor x;
  };
  const auto trained = [](lt::CheckpointMode mode) {
    torch::manual_seed(5);
    auto layer = lt::Checkpointed<TwoProducts>::make();
    layer->checkpoint = {.mode = mode};
    lt::FusedSGD sgd(layer->parameters(), {.lr = 0.1});
    const auto objective = [](lt::Checkpointed<TwoProducts>& layer, const Batch& batch) {
      return layer(batch.x).square().mean();
    };
    lt::Trainer trainer(layer, sgd, objective, lt::UpdateInBackward<>{});
    trainer.fit(std::vector<Batch>{{torch::randn({6, kWidth})}, {torch::randn({6, kWidth})}}, {.epochs = 2});
    return layer->parameters();
  };
  check_same(trained(lt::CheckpointMode::light), trained(lt::CheckpointMode::off));
}

TEST_CASE("light: a product of a part of an argument needs no second run") {
  std::vector<lt::Checkpointed<OfArgument>> layers{lt::Checkpointed<OfArgument>::make()};
  const at::Tensor x = torch::randn({2, 3, kWidth});
  const auto plain = differentiate(layers, x, {.mode = lt::CheckpointMode::off});
  const OperatorsCalled called;
  check_same(differentiate(layers, x, {.mode = lt::CheckpointMode::light}), plain);
  CHECK(called.count("aten::cos") == 1);
}

TEST_CASE("keep_product outside of a light block is a plain call") {
  const at::Tensor x = input(here<float>());
  const auto exponential = [](const at::Tensor& x) { return x.exp(); };
  const at::Tensor y = lt::keep_product(exponential, x);
  y.sum().backward();
  CHECK(same_bits(x.grad(), y));
}

TEST_CASE("parts: gradients up to the order of sums, whatever the number of samples") {
  const auto samples = GENERATE(1, 2, 3, 8, 9);
  const auto mode = GENERATE(lt::CheckpointMode::recompute, lt::CheckpointMode::light);
  std::vector<lt::Checkpointed<Gated>> layers{lt::Checkpointed<Gated>::make(),
                                              lt::Checkpointed<Gated>::make()};
  for (auto& layer : layers) layer->to(at::kDouble), layer->dropout = false;
  const at::Tensor x = torch::randn({samples, 5, kWidth}, at::kDouble);
  const Tensors whole = differentiate(layers, x, {.mode = lt::CheckpointMode::off});
  const Tensors in_parts = differentiate(layers, x, {.mode = mode, .parts = 4});
  for (std::size_t i = 0; i < whole.size(); ++i)
    CHECK((in_parts[i] - whole[i]).abs().max().item<double>() < 1e-12 * whole[i].abs().max().item<double>());
}

TEST_CASE("parts: every argument is cut; numbers and what the block captures are given whole") {
  const at::Tensor scale = torch::randn({3}).requires_grad_(), shift = torch::tensor(0.5);
  const auto f = [scale](const at::Tensor& x, const at::Tensor& mask, const at::Tensor& shift,
                         double factor) {
    CHECK(x.size(0) == 2);
    CHECK(mask.size(0) == 2);
    return (x * mask + shift).sin() * scale * factor;
  };
  const at::Tensor x = torch::randn({6, 3}).requires_grad_(), mask = torch::rand({6, 1});
  const at::Tensor y = lt::checkpoint({.parts = 3}, f, x, mask, shift, 2.0);
  CHECK(same_bits(y, (x * mask + shift).sin() * scale * 2.0));
  y.sum().backward();
  CHECK(at::allclose(x.grad(), (x * mask + shift).cos() * mask * scale * 2.0));
  CHECK(at::allclose(scale.grad(), ((x * mask + shift).sin() * 2.0).sum(0)));
}

TEST_CASE("parts: an argument that is not one row a sample is refused") {
  const auto f = [](const at::Tensor& x_BTD, const at::Tensor& table_TD) { return x_BTD + table_TD; };
  const at::Tensor x = torch::randn({5, 6, 3}).requires_grad_(), table = torch::randn({6, 3});
  CHECK_THROWS_AS(lt::checkpoint({.parts = 2}, f, x, table), lt::CheckpointError);
  CHECK_THROWS_WITH(
      lt::checkpoint({.name = "layer 3", .parts = 2}, f, x, table),
      Catch::Contains("an argument of layer 3 is [6, 3] beside 5 samples") && Catch::Contains("capture"));
  CHECK_THROWS_WITH(lt::checkpoint({.parts = 2}, f, x, torch::randn({1, 6, 3})),
                    Catch::Contains("[1, 6, 3]"));
  CHECK(same_bits(lt::checkpoint({.parts = 1}, f, x, table), x + table));
  CHECK(same_bits(lt::checkpoint({.parts = 2}, f, x, table.expand({5, 6, 3})), x + table));
}

TEST_CASE("parts: refused below one, and where blocks are offloaded whole") {
  const auto twice = [](const at::Tensor& x) { return x * 2; };
  const at::Tensor x = torch::ones({4, 2}).requires_grad_();
  for (const auto mode :
       {lt::CheckpointMode::recompute, lt::CheckpointMode::light, lt::CheckpointMode::offload})
    CHECK_THROWS_WITH(lt::checkpoint({.mode = mode, .parts = 0}, twice, x),
                      Catch::Contains("at least 1, got 0"));
  CHECK_THROWS_WITH(lt::checkpoint({.mode = lt::CheckpointMode::offload, .parts = 2}, twice, x),
                    Catch::Contains("offload") && Catch::Contains("got 2 parts"));
}

TEST_CASE("parts: random numbers are drawn again as they were") {
  std::vector<lt::Checkpointed<Gated>> layers{lt::Checkpointed<Gated>::make()};
  layers[0]->to(at::kDouble);
  const at::Tensor x = torch::randn({8, kWidth}, at::kDouble);
  const lt::CheckpointOptions light{.mode = lt::CheckpointMode::light, .parts = 4}, recomputed{.parts = 4};
  const Tensors a = differentiate(layers, x, light), b = differentiate(layers, x, recomputed);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(same_bits(a[i], b[i]));
}

TEST_CASE("parts: the most at once is that of one part") {
  const auto peak = [](std::int64_t parts) {
    std::vector<lt::Checkpointed<Gated>> layers;
    for (int i = 0; i < 2; ++i) layers.push_back(lt::Checkpointed<Gated>::make());
    const at::Tensor x = torch::randn({kMany, kWidth}).requires_grad_();
    const LiveBytes live;
    through(layers, x, {.parts = parts}).sum().backward();
    return live.peak() / (kMany * kWidth * 4);
  };
  CHECK(peak(1) >= 20);
  CHECK(peak(8) <= 10);
}

TEST_CASE("parts: refused for a block that does not return a tensor, and below 1") {
  const auto two = [](const at::Tensor& x) { return std::make_tuple(x.sin(), x.cos()); };
  const at::Tensor x = torch::randn({4, 2}).requires_grad_();
  CHECK_THROWS_WITH(lt::checkpoint({.parts = 2}, two, x), Catch::Contains("does not return a tensor"));
  CHECK_THROWS_WITH(lt::checkpoint({.parts = 0}, two, x), Catch::Contains("at least 1, got 0"));
}
