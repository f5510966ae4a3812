// SPDX-License-Identifier: MIT
// Tests adapters: int8_base, int8_weight
#include "support/precompiled.hpp"

#include <looptorch/adapters/int8_base.hpp>
#include <looptorch/adapters/int8_weight.hpp>
#include <looptorch/adapters/lora_files.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/save_weights.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "unit/adapters/adapted_net.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lt = looptorch;
using adapted::Net;
using adapted::wave;
using Catch::Contains;
using lt::detail::Int8Weight;

namespace {

Net adapted_net() {
  torch::manual_seed(3);
  Net net;
  lt::add_lora(*net, {.rank = 2, .alpha = 4, .patterns = {"fc1", "out"}});
  const torch::NoGradGuard no_grad;
  for (const auto& item : net->named_parameters())
    if (item.key().find("lora_B") != std::string::npos)
      item.value().copy_(0.3 * wave(item.value().sizes(), 3));
  return net;
}

Int8Weight narrowed(const at::Tensor& weight) {
  return lt::detail::to_int8(weight, lt::detail::largest_of_rows(weight));
}

struct Batch {
  at::Tensor x, y;
};

lt::Loss objective(Net& net, const Batch& batch) {
  return {torch::mse_loss(net(batch.x), batch.y), batch.x.size(0)};
}

const std::vector<Batch>& data() {
  static const std::vector<Batch> data{{wave({4, 5}, 0), wave({4, 3}, 1)},
                                       {wave({4, 5}, 2), wave({4, 3}, 3)}};
  return data;
}

}  // namespace

TEST_CASE("8-bit rows have the largest value of a row, and are off by half a step at most", "[int8]") {
  at::Tensor weight = torch::randn({6, 40}) * torch::tensor({1e-20, 1e-3, 1.0, 50.0, 1e4, 0.0}).unsqueeze(1);
  weight[2][7] = -9;
  const Int8Weight held = narrowed(weight);
  CHECK(held.rows_NK.scalar_type() == at::kChar);
  const at::Tensor wide = lt::detail::widened(held, at::kFloat);
  const at::Tensor largest = weight.abs().amax(1);
  CHECK(wide.abs().amax(1).allclose(largest, 1e-6, 0));
  CHECK((wide - weight).abs().le(largest.unsqueeze(1) * (1.0001 / 254)).all().item<bool>());
  CHECK(wide[5].eq(0).all().item<bool>());
  CHECK(wide[2][7].item<float>() == Approx(-9));
  const Int8Weight of_fp64 = narrowed(weight.to(at::kDouble));
  CHECK(of_fp64.rows_NK.equal(held.rows_NK));
  CHECK(of_fp64.scale_N.equal(held.scale_N));
}

TEST_CASE("its product and its input's gradient are those of the widened weight", "[int8]") {
  const Int8Weight held = narrowed(torch::randn({7, 5}));
  const at::Tensor bias = torch::randn({7});
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = torch::randn({2, 3, 5}).to(type).requires_grad_(),
                     same = x.detach().clone().requires_grad_();
    const at::Tensor y = lt::detail::int8_linear(x, held, bias);
    const at::Tensor expected = at::linear(same, lt::detail::widened(held, type), bias.to(type));
    CHECK(y.scalar_type() == type);
    CHECK(y.equal(expected));
    const at::Tensor slope = torch::randn_like(y);
    y.backward(slope), expected.backward(slope);
    CHECK(x.grad().allclose(same.grad(), type == at::kBFloat16 ? 1e-2 : 1e-5, 1e-6));
  }
  const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
  const at::Tensor x = torch::randn({3, 5}).requires_grad_();
  const at::Tensor y = lt::detail::int8_linear(x, held, bias);
  CHECK(y.scalar_type() == at::kBFloat16);
  y.sum().backward();
  CHECK(x.grad().scalar_type() == at::kFloat);
}

TEST_CASE("a bias that is trained gets its gradient", "[int8]") {
  const Int8Weight held = narrowed(torch::randn({7, 5}));
  const at::Tensor x = torch::randn({2, 3, 5}).requires_grad_(), bias = torch::randn({7}).requires_grad_(),
                   same = bias.detach().clone().requires_grad_();
  const at::Tensor y = lt::detail::int8_linear(x, held, bias);
  const at::Tensor expected = at::linear(x.detach(), lt::detail::widened(held, at::kFloat), same);
  CHECK(y.allclose(expected, 1e-5, 1e-6));
  const at::Tensor slope = torch::randn_like(y);
  y.backward(slope), expected.backward(slope);
  CHECK(bias.grad().allclose(same.grad(), 1e-5, 1e-6));
  CHECK(x.grad().defined());
}

TEST_CASE("a model's outputs differ by the rounding, and the weights take a quarter", "[int8]") {
  Net net = adapted_net();
  const at::Tensor x = wave({4, 5}, 0), before = net(x).detach();
  CHECK(lt::hold_base_in_int8(*net) == 3);
  CHECK(net->inner->fc1->weight.nbytes() == 49);
  const at::Tensor error = (net(x) - before).abs();
  CHECK(error.max().item<float>() < 0.02);
  CHECK(error.max().item<float>() > 0);
  CHECK(lt::hold_base_in_int8(*net) == 0);
}

TEST_CASE("merged, a weight is wide again; unmerged, it has its 8 bits; folded, the model is plain",
          "[int8]") {
  Net net = adapted_net();
  net->eval();
  lt::hold_base_in_int8(*net);
  const at::Tensor x = wave({4, 5}, 0), before = net(x).detach(), rows = net->fc1->weight.clone();
  lt::merge_lora(*net);
  CHECK(net->fc1->weight.scalar_type() == at::kFloat);
  CHECK(net(x).allclose(before, 1e-5, 1e-6));
  lt::unmerge_lora(*net);
  CHECK(net->fc1->weight.equal(rows));
  CHECK(net(x).equal(before));
  lt::fold_lora(*net);
  CHECK(net(x).allclose(before, 1e-5, 1e-6));
  CHECK(net->fc1->weight.scalar_type() == at::kFloat);
  CHECK(net->named_buffers().is_empty());
  CHECK(net->named_parameters().keys() == Net()->named_parameters().keys());
}

TEST_CASE("adapters are trained on it as on the widened weights, and a resumed run has the same bits",
          "[int8]") {
  lt::testing::TemporaryFolder folder;
  const auto run = [&](Net& net, const char* name, std::int64_t epochs, bool resume = false) {
    std::vector<at::Tensor> trained;
    for (const at::Tensor& parameter : net->parameters())
      if (parameter.requires_grad()) trained.push_back(parameter);
    lt::FusedAdamW adamw(trained, {.lr = 0.05});
    lt::Trainer trainer(net, adamw, objective, lt::SnapshotEvery{.folder = folder.path() / name, .steps = 1});
    lt::FitOptions options{.epochs = epochs};
    if (resume) options.resume = folder.path() / name;
    return trainer.fit(data(), options).loss;
  };
  Net wide = adapted_net();
  {
    const torch::NoGradGuard no_grad;
    for (const auto& layer : lt::detail::lora_layers(*wide)) {
      at::Tensor& weight = layer.layer->layer().weight;
      weight.copy_(lt::detail::widened(narrowed(weight), at::kFloat));
    }
  }
  const double expected = run(wide, "wide", 6);
  Net whole = adapted_net();
  lt::hold_base_in_int8(*whole);
  CHECK(run(whole, "whole", 6) == Approx(expected).epsilon(1e-4));
  Net first = adapted_net(), second = adapted_net();
  lt::hold_base_in_int8(*first), lt::hold_base_in_int8(*second);
  run(first, "resumed", 3);
  run(second, "resumed", 6, /*resume=*/true);
  for (const auto& item : whole->named_parameters())
    CHECK(item.value().equal(second->named_parameters()[item.key()]));
}

TEST_CASE("what has no 8 bits is refused, and nothing is changed", "[int8]") {
  Net plain;
  CHECK_THROWS_AS(lt::hold_base_in_int8(*plain), lt::UsageError);
  Net merged = adapted_net();
  lt::merge_lora(*merged);
  CHECK_THROWS_WITH(lt::hold_base_in_int8(*merged), Contains("fc1") && Contains("unmerge_lora"));
  Net broken = adapted_net();
  {
    const torch::NoGradGuard no_grad;
    broken->out->weight[1][2] = std::numeric_limits<float>::quiet_NaN();
  }
  CHECK_THROWS_WITH(lt::hold_base_in_int8(*broken), Contains("weight of out") && Contains("NaN"));
  CHECK(broken->fc1->weight.scalar_type() == at::kFloat);
  Net tied = adapted_net();
  tied->register_buffer("table", tied->inner->fc1->weight.detach());
  CHECK_THROWS_WITH(lt::hold_base_in_int8(*tied),
                    Contains("hold_base_in_int8: the weight of inner.fc1 is also table"));
  CHECK(tied->fc1->weight.scalar_type() == at::kFloat);
  Net trained = adapted_net();
  trained->inner->fc1->weight.set_requires_grad(true);
  CHECK(lt::hold_base_in_int8(*trained) == 2);
}

TEST_CASE("weights are loaded before, and a file of the plain model is refused after it", "[int8]") {
  lt::testing::TemporaryFolder folder;
  Net net = adapted_net();
  const auto file = folder.path() / "weights.safetensors";
  lt::save_weights(net, file);
  lt::hold_base_in_int8(*net);
  CHECK_THROWS(lt::load_weights(net, file));
  lt::save_weights(net, file);
  Net same = adapted_net();
  lt::hold_base_in_int8(*same);
  lt::load_weights(same, file);
  CHECK(same->fc1->weight.equal(net->fc1->weight));
}

TEST_CASE("a model whose 8-bit weights were converted is refused", "[int8]") {
  auto net = adapted_net();
  lt::hold_base_in_int8(*net);
  net->to(at::kBFloat16);  // the weights, too: two bytes each, and scales of 8 bits
  CHECK_THROWS_WITH(net(wave({4, 5}, 0).to(at::kBFloat16)),
                    Contains("was converted to BFloat16: call to(dtype) before hold_base_in_int8"));
}
