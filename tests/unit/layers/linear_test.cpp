// SPDX-License-Identifier: MIT
// Linear: torch::nn::Linear's numbers by fewer operators, and what a module must do.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora.hpp>
#include <looptorch/layers/linear.hpp>

#include "support/operators_called.hpp"
#include "support/place.hpp"

#include <ATen/autocast_mode.h>

namespace lt = looptorch;
using lt::testing::place, lt::testing::placed;

namespace {

/// The same weights in both.
std::pair<torch::nn::Linear, lt::Linear> pair_of(bool bias, at::ScalarType type = at::kDouble) {
  const auto options = torch::nn::LinearOptions(5, 3).bias(bias);
  torch::manual_seed(1);
  torch::nn::Linear theirs(options);
  torch::manual_seed(1);
  lt::Linear ours(options);
  theirs->to(place(), type), ours->to(place(), type);
  return {theirs, ours};
}

}  // namespace

TEST_CASE("Linear has torch::nn::Linear's initial values, outputs and gradients") {
  for (const bool bias : {true, false}) {
    for (const std::vector<std::int64_t>& sizes :
         std::vector<std::vector<std::int64_t>>{{5}, {4, 5}, {2, 4, 5}, {2, 3, 4, 5}, {0, 5}}) {
      auto [theirs, ours] = pair_of(bias);
      CHECK(theirs->weight.equal(ours->weight));
      const auto input = placed(at::randn(sizes, at::kDouble)).set_requires_grad(true);
      const auto here = input.detach().clone().set_requires_grad(true);
      const at::Tensor expected = theirs(input), output = ours(here);
      CHECK(at::allclose(output, expected, 1e-12, 1e-12));
      expected.square().sum().backward(), output.square().sum().backward();
      CHECK(at::allclose(input.grad(), here.grad(), 1e-12, 1e-12));
      CHECK(at::allclose(theirs->weight.grad(), ours->weight.grad(), 1e-12, 1e-12));
      if (bias) CHECK(at::allclose(theirs->bias.grad(), ours->bias.grad(), 1e-12, 1e-12));
    }
  }
}

TEST_CASE("Linear takes inputs that are not contiguous") {
  auto [theirs, ours] = pair_of(true);
  const at::Tensor input = placed(at::randn({2, 5, 4}, at::kDouble)).transpose(1, 2);
  CHECK(at::allclose(ours(input), theirs(input), 1e-12, 1e-12));
}

TEST_CASE("Linear adds its bias in the product, and casts its weight once under autocast") {
  auto [theirs, ours] = pair_of(true, at::kFloat);
  const at::Tensor input = placed(at::randn({2, 4, 5}));
  const auto calls = [&](auto& layer, const char* name) {
    const OperatorsCalled called;
    (void)layer(input), (void)layer(input);
    return called.count(name);
  };
  CHECK(calls(theirs, "aten::add_") == 2);
  CHECK(calls(ours, "aten::add_") == 0);
  const auto type = place().type();
  at::autocast::set_autocast_enabled(type, true);
  at::autocast::increment_nesting();
  const at::ScalarType before = at::autocast::get_autocast_dtype(type);
  at::autocast::set_autocast_dtype(type, at::kBFloat16);
  (void)ours(input), (void)theirs(input);
  CHECK(calls(ours, "aten::_to_copy") == 2);    // the inputs
  CHECK(calls(theirs, "aten::_to_copy") >= 4);  // and the weight each time
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(type, before);
  at::autocast::set_autocast_enabled(type, false);
}

TEST_CASE("Linear exchanges weights with torch::nn::Linear, stands in Sequential, and takes adapters") {
  auto [theirs, ours] = pair_of(true);
  CHECK(theirs->named_parameters().keys() == ours->named_parameters().keys());
  std::stringstream file;
  torch::serialize::OutputArchive out;
  theirs->save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  lt::Linear loaded(5, 3);
  loaded->to(at::kDouble);
  loaded->load(in);
  CHECK(loaded->weight.cpu().equal(theirs->weight.cpu()));
  torch::nn::Sequential both(ours, torch::nn::ReLU(), lt::Linear(3, 2));
  both->to(place(), at::kDouble);
  CHECK(both->forward(placed(at::randn({2, 5}, at::kDouble))).sizes() == at::IntArrayRef{2, 2});
  static_assert(lt::LinearLayer<lt::Linear>);
}

TEST_CASE("a copy of a Linear is one, with parameters of its own") {
  auto [theirs, ours] = pair_of(true);
  ours->weight.set_requires_grad(false);
  ours->eval();
  const auto copy = std::dynamic_pointer_cast<lt::LinearImpl>(ours->clone());
  REQUIRE(copy);
  CHECK(copy->weight.equal(ours->weight));
  CHECK(copy->weight.data_ptr() != ours->weight.data_ptr());
  CHECK_FALSE(copy->weight.requires_grad());
  CHECK(copy->bias.requires_grad());
  CHECK_FALSE(copy->is_training());
  torch::nn::Sequential net(lt::Linear(5, 3));
  const auto of_net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  CHECK(of_net->ptr(0)->as<lt::LinearImpl>() != nullptr);
  const auto moved = std::dynamic_pointer_cast<lt::LinearImpl>(ours->clone(place()));
  CHECK(moved->weight.device().type() == place().type());
}
