// SPDX-License-Identifier: MIT
// Muon against torch.optim.Muon (tests/parity/muon.py), and AdamW in its groups.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/muon.hpp>

#include "support/reference.hpp"

namespace muon_test {

namespace lt = looptorch;

const std::vector<std::vector<int64_t>> kShapes{{6, 4}, {4, 9}, {16, 16}, {33, 7}};

std::vector<at::Tensor> parameters(at::ScalarType type) {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < kShapes.size(); ++i)
    result.push_back(reference::wave(kShapes[i], static_cast<double>(i), type).requires_grad_());
  return result;
}

void set_gradients(std::vector<at::Tensor>& params, int64_t step, double factor = 1) {
  for (std::size_t i = 0; i < params.size(); ++i)
    params[i].mutable_grad() =
        reference::wave(params[i].sizes(), 0.3 * static_cast<double>(step) + static_cast<double>(i),
                        params[i].scalar_type()) *
        (1 + static_cast<double>(step)) * factor;
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.detach().flatten().to(torch::kDouble));
  return torch::cat(all);
}

/// True if this processor and LibTorch multiply in bf16 as the recording ones did.
bool has_recorded_products() {
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    const auto matrix = reference::wave(kShapes[i], static_cast<double>(i), torch::kBFloat16);
    if (!torch::matmul(matrix, matrix.t())
             .equal(reference::tensors("muon").at("product." + std::to_string(i))))
      return false;
  }
  return true;
}

void compare(const std::string& name, at::ScalarType type, double tolerance, const lt::MuonOptions& options) {
  if (!has_recorded_products()) tolerance = 2e-2;
  auto params = parameters(type);
  lt::Muon optimizer(params, options);
  for (int64_t step = 0; step < 5; ++step) {
    set_gradients(params, step, step % 2 ? 4 : 1);
    lt::GradientScale scale;
    scale.multiply(step % 2 ? 0.25 : 1.0);
    optimizer.step(scale, step % 3 ? torch::zeros({}) : at::Tensor());
    INFO(name << " step " << step);
    const auto expected = reference::tensors("muon").at(name + ".history")[step];
    CHECK(reference::difference(flat(params), expected) < tolerance);
  }
  std::vector<at::Tensor> kept;
  for (const auto& parameter : params)
    kept.push_back(optimizer.state_of(parameter).get<at::Tensor>("momentum_buffer"));
  CHECK(torch::allclose(flat(kept), reference::tensors("muon").at(name + ".kept").to(torch::kDouble), 1e-5,
                        1e-6));
}

}  // namespace muon_test

using namespace muon_test;

TEST_CASE("Muon has the numbers of torch.optim.Muon, with factors folded in") {
  compare("default64", torch::kDouble, 1e-10, {.lr = 1e-2});
  compare("default32", torch::kFloat, 1e-5, {.lr = 1e-2});
  compare("plain64", torch::kDouble, 1e-10,
          {.lr = 1e-2, .weight_decay = 0, .momentum = 0.8, .nesterov = false, .steps = 3});
  compare("like_adamw64", torch::kDouble, 1e-10, {.lr = 1e-2, .rate = lt::MuonRate::like_adamw});
}

TEST_CASE("an orthogonalised matrix has singular values near 1") {
  for (const auto& shape : kShapes) {
    torch::manual_seed(3);
    const auto values =
        std::get<1>(torch::linalg_svd(lt::detail::orthogonalised(torch::randn(shape), {}).to(torch::kFloat)));
    CHECK(values.min().item<double>() > 0.4);
    CHECK(values.max().item<double>() < 1.4);
  }
}

TEST_CASE("Muon updates a convolution as the matrix of its output channels") {
  torch::manual_seed(5);
  const auto start = torch::randn({8, 3, 2, 2}), gradient = torch::randn({8, 3, 2, 2});
  auto convolution = start.clone().requires_grad_(), matrix = start.clone().reshape({8, 12}).requires_grad_();
  convolution.mutable_grad() = gradient.clone(), matrix.mutable_grad() = gradient.reshape({8, 12}).clone();
  lt::Muon one({convolution}), other({matrix});
  one.step(), other.step();
  CHECK(convolution.detach().reshape({8, 12}).equal(matrix.detach()));
  CHECK_FALSE(convolution.detach().equal(start));
}

TEST_CASE("a group with adamw is updated as by FusedAdamW") {
  auto bias = reference::wave({40}, 1).requires_grad_(), same = reference::wave({40}, 1).requires_grad_();
  auto matrix = reference::wave({6, 4}, 0).requires_grad_();
  lt::Muon muon({lt::Muon::group({matrix}, {.lr = 1e-2}),
                 lt::Muon::group({bias}, {.lr = 3e-3, .weight_decay = 0.01, .eps = 1e-8, .adamw = true})});
  lt::FusedAdamW adamw({same}, {.lr = 3e-3, .weight_decay = 0.01});
  for (int step = 0; step < 4; ++step) {
    bias.mutable_grad() = reference::wave({40}, 0.2 * step), same.mutable_grad() = bias.grad().clone();
    matrix.mutable_grad() = reference::wave({6, 4}, step);
    muon.step(), adamw.step();
  }
  CHECK(reference::difference(bias, same) < 1e-12);
  CHECK(muon.state_of(bias).contains("exp_avg"));
  CHECK_FALSE(muon.state_of(bias).contains("momentum_buffer"));
}

TEST_CASE("Muon refuses a vector without adamw, and options out of range") {
  const auto bias = torch::ones({4}).requires_grad_();
  CHECK_THROWS_WITH(lt::Muon({bias}), Catch::Contains("[4]") && Catch::Contains("adamw"));
  CHECK_THROWS_AS(lt::Muon({bias}, {.momentum = 1, .adamw = true}), lt::UsageError);
  CHECK_THROWS_AS(lt::Muon({bias}, {.steps = 0, .adamw = true}), lt::UsageError);
  CHECK_THROWS_AS(lt::Muon({bias}, {.lr = -1, .adamw = true}), lt::UsageError);
}

TEST_CASE("an overflow leaves Muon's weights and momentum as they were") {
  auto params = parameters(torch::kFloat);
  lt::Muon muon(params);
  set_gradients(params, 0);
  muon.step();
  const auto before = flat(params),
             momentum = muon.state_of(params[0]).get<at::Tensor>("momentum_buffer").clone();
  for (auto& parameter : params) parameter.mutable_grad() = torch::full_like(parameter, NAN);
  muon.step(lt::GradientScale{}, torch::ones({}));
  CHECK(flat(params).equal(before));
  CHECK(muon.state_of(params[0]).get<at::Tensor>("momentum_buffer").equal(momentum));
}

TEST_CASE("Muon rounds 16-bit weights stochastically, and loses no small update on average") {
  const auto type = GENERATE(torch::kBFloat16, torch::kHalf);
  auto weight = torch::ones({64, 64}).to(type).requires_grad_();
  torch::manual_seed(1);
  lt::Muon muon({weight}, {.lr = 1e-3, .weight_decay = 0.1});
  for (int step = 0; step < 20; ++step) {
    weight.mutable_grad() = torch::zeros({64, 64}).to(type);
    muon.step();
  }
  CHECK(weight.detach().to(torch::kDouble).mean().item<double>() == Approx(1 - 20 * 1e-4).margin(3e-4));
}
