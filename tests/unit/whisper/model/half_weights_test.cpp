// SPDX-License-Identifier: MIT
// Tests whisper/model: linear
#include "support/precompiled.hpp"

#include "../reference.hpp"

#include <whisper/decoding/decoding.hpp>
#include <whisper/model/half_weights.hpp>
#include <whisper/model/linear.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace half_weights_test {

/// FBGEMM is not part of every LibTorch, and does not serve every processor.
bool is_missing() {
  if (whisper::detail::Fbgemm::get()) return false;
  WARN("skipped: this LibTorch has no products with 16-bit weights for this processor");
  return true;
}

/// Random numbers that fp16 holds.
at::Tensor half_numbers(at::IntArrayRef shape) {
  return (at::randn(shape) * 0.1).to(at::kHalf).to(at::kFloat);
}

/// The largest difference to the product in double precision.
double error_of(const at::Tensor& product, const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& bias) {
  auto exact = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
  if (bias.defined()) exact = exact + bias.to(at::kDouble);
  return (product.to(at::kDouble) - exact).abs().max().item<double>();
}

whisper::Whisper half_model() {
  auto model = whisper_test::tiny_model();
  torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.copy_(parameter.to(at::kHalf));
  model->eval();
  return model;
}

}  // namespace half_weights_test

TEST_CASE("Products with 16-bit weights are fp32's, by one thread and by several, whatever the shape") {
  if (half_weights_test::is_missing()) return;
  torch::manual_seed(1);
  torch::NoGradGuard no_grad;
  struct Case {
    std::int64_t inputs, outputs;
    std::vector<std::int64_t> rows;
  };
  for (const auto& [inputs, outputs, rows] : std::vector<Case>{{16, 24, {1}},
                                                               {7, 3, {5}},
                                                               {384, 384, {2, 1}},
                                                               {96, 130, {3, 70}},
                                                               {512, 6151, {5}},
                                                               {512, 6151, {100}}}) {
    CAPTURE(inputs, outputs, rows);
    const auto weight = half_weights_test::half_numbers({outputs, inputs}), bias = at::randn({outputs});
    auto shape = rows;
    shape.push_back(inputs);
    const auto x = at::randn(shape);
    for (const auto& added : {bias, at::Tensor()}) {
      const auto half = whisper::HalfWeights::pack(weight, added);
      REQUIRE(half);
      REQUIRE(half->serves(x, weight));
      const auto product = (*half)(x);
      shape.back() = outputs;
      CHECK(product.sizes() == at::IntArrayRef(shape));
      CHECK(half_weights_test::error_of(product, x, weight, added) < 2e-5);
    }
  }
}

TEST_CASE("16 bits hold each weight exactly, or not at all") {
  if (half_weights_test::is_missing()) return;
  torch::NoGradGuard no_grad;
  const auto exact = torch::tensor({65504.0, -65504.0, 0.00006103515625, 0.000000059604644775390625,
                                    1.0009765625, -0.0, 0.333251953125, -2048.0},
                                   at::kFloat)
                         .view({2, 4});
  const auto half = whisper::HalfWeights::pack(exact);
  REQUIRE(half);
  CHECK(at::equal((*half)(at::eye(4)), exact.t()));
  for (const auto value : {0.1F, 65505.0F, 1e-8F, 3e38F, std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(), 1.00048828125F}) {
    CAPTURE(value);
    auto other = exact.clone();
    other[1][2] = value;
    CHECK_FALSE(whisper::HalfWeights::pack(other));
  }
  CHECK_FALSE(whisper::HalfWeights::pack(exact.to(at::kDouble)));
  CHECK_FALSE(whisper::HalfWeights::pack(exact.to(at::kBFloat16)));
}

TEST_CASE("A layer uses its 16-bit weights without gradients only, and not once its weight has changed") {
  if (half_weights_test::is_missing()) return;
  torch::manual_seed(2);
  whisper::Projection layer(12, 8);
  {
    torch::NoGradGuard no_grad;
    layer->weight.copy_(half_weights_test::half_numbers({8, 12}));
  }
  layer->hold_half_weights();
  REQUIRE(layer->half_weights());
  const auto x = at::randn({3, 12});
  const auto product = whisper::linear(layer, x);
  CHECK(at::equal(product, at::linear(x, layer->weight, layer->bias)));
  product.sum().backward();
  CHECK(at::allclose(layer->weight.grad(), x.sum(0).expand({8, 12})));

  torch::NoGradGuard no_grad;
  CHECK(layer->half_weights()->serves(x, layer->weight));
  CHECK_FALSE(layer->half_weights()->serves(x.to(at::kDouble), layer->weight));
  CHECK_FALSE(layer->half_weights()->serves(at::randn({300, 12}), layer->weight));
  CHECK_FALSE(layer->half_weights()->serves(at::empty({0, 12}), layer->weight));
  layer->weight.mul_(3);
  CHECK_FALSE(layer->half_weights()->serves(x, layer->weight));
  CHECK(at::allclose(whisper::linear(layer, x), at::linear(x, layer->weight, layer->bias)));
  layer->hold_half_weights();  // three times an fp16 number need not be one
  layer->weight.copy_(half_weights_test::half_numbers({8, 12}));
  layer->hold_half_weights();
  CHECK(layer->half_weights()->serves(x, layer->weight));
  CHECK(half_weights_test::error_of(whisper::linear(layer, x), x, layer->weight, layer->bias) < 2e-5);
}

TEST_CASE("A decoder that holds 16-bit weights writes the same texts, greedily and by a beam") {
  if (half_weights_test::is_missing()) return;
  auto model = half_weights_test::half_model();
  torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  const auto states = model->encoder()(at::randn({3, 6, 40}));
  whisper::DecodingOptions options;
  options.prompt = {1, 2}, options.end_of_text = 0, options.max_length = 12;
  for (const std::int64_t beam : {1, 4}) {
    options.beam_size = beam;
    auto plain = half_weights_test::half_model();
    const auto expected = whisper::decode(plain, states, options);
    model->decoder()->hold_half_weights();
    const auto texts = whisper::decode(model, states, options);
    REQUIRE(texts.size() == expected.size());
    for (std::size_t clip = 0; clip < texts.size(); ++clip) {
      CAPTURE(beam, clip);
      CHECK(texts[clip].tokens == expected[clip].tokens);
      CHECK(texts[clip].average_log_probability ==
            Approx(expected[clip].average_log_probability).margin(1e-5));
    }
  }
}

TEST_CASE("A model that training has left in fp32 decodes as it did") {
  torch::NoGradGuard no_grad;
  auto model = whisper_test::tiny_model();
  const auto tokens = torch::tensor({{1, 5, 9}}, at::kLong);
  const auto states = model->encoder()(at::ones({1, 6, 40}));
  const auto before = model->decoder()->logits(model->decoder()(tokens, states));
  model->decoder()->hold_half_weights();
  CHECK(at::equal(model->decoder()->logits(model->decoder()(tokens, states)), before));
}
