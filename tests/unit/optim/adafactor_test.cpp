// SPDX-License-Identifier: MIT
// Adafactor against transformers' (tests/parity/adafactor.py).
// Tests optim/fused: rounded_weight
// Tests optim/interface: small_updates
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/optim/adafactor.hpp>

#include "unit/optim/recorded.hpp"

namespace adafactor_test {

namespace lt = looptorch;

void compare(const std::string& name, at::ScalarType type, double tolerance, lt::AdafactorOptions options) {
  const auto& tensors = reference::tensors("adafactor");
  auto parameters = recorded::parameters(type);
  lt::Adafactor optimizer(parameters, options);
  for (int64_t step = 0; step < recorded::kSteps; ++step) {
    recorded::set_gradients(parameters, step, step % 2 ? 4.0 : 1.0);
    lt::GradientScale scale;
    scale.multiply(step % 2 ? 0.25 : 1.0);
    optimizer.step(scale, step % 3 ? torch::zeros({}) : at::Tensor());
    INFO(name << " step " << step);
    const auto expected = tensors.at(name + ".history")[step].to(torch::kDouble);
    CHECK(torch::allclose(recorded::flat(parameters), expected, tolerance, tolerance));
  }
  const auto state = optimizer.state_of(parameters[0]);
  const auto kept =
      recorded::flat({state.get<at::Tensor>("exp_avg_sq_row"), state.get<at::Tensor>("exp_avg_sq_col")});
  CHECK(torch::allclose(kept, tensors.at(name + ".kept").to(torch::kDouble), 1e-5, 1e-7));
}

constexpr lt::AdafactorOptions kFixed{.lr = 1e-2, .relative_step = false, .scale_parameter = false};

TEST_CASE("Adafactor has the numbers of transformers', with factors folded in") {
  compare("relative64", torch::kDouble, 1e-10, {});
  compare("relative32", torch::kFloat, 1e-5, {});
  compare("fixed64", torch::kDouble, 1e-10, kFixed);
  compare("fixed32", torch::kFloat, 1e-5, kFixed);
  compare("decay64", torch::kDouble, 1e-10,
          {.lr = 1e-2, .relative_step = false, .decay = -0.5, .weight_decay = 0.3});
  compare("momentum64", torch::kDouble, 1e-10,
          {.lr = 1e-2,
           .relative_step = false,
           .scale_parameter = false,
           .eps = {1e-8, 0.5},
           .clip_threshold = 0.5,
           .beta1 = 0.9});
}

TEST_CASE("Adafactor's relative rate falls with the root of the step, from lr") {
  auto weight = torch::zeros({1}, torch::kDouble).requires_grad_();
  lt::Adafactor optimizer({weight}, {.lr = 0.5, .scale_parameter = false});
  double expected = 0;
  for (int step = 1; step <= 9; ++step) {
    weight.mutable_grad() = torch::ones({1}, torch::kDouble);
    optimizer.step();
    expected -= std::min(0.5, 1 / std::sqrt(step));
    CHECK(weight.item<double>() == Approx(expected));
  }
}

/// One step on a parameter of this shape.
at::Tensor after_steps(const at::Tensor& start, const at::Tensor& gradient, lt::AdafactorOptions options) {
  auto weight = start.detach().clone().requires_grad_();
  lt::Adafactor optimizer({weight}, options);
  for (int step = 1; step <= 3; ++step) weight.mutable_grad() = gradient * step, optimizer.step();
  return weight.detach();
}

TEST_CASE("Adafactor works on large parameters in parts, with the numbers of the whole") {
  torch::manual_seed(0);
  const lt::AdafactorOptions options{.beta1 = 0.5};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1500, 1000}, {1500000}, {1200, 3, 500}}) {
    const auto start = torch::randn(shape), gradient = torch::randn(shape);
    const auto whole = after_steps(start.to(torch::kDouble), gradient.to(torch::kDouble), options);
    const auto error = (after_steps(start, gradient, options).to(torch::kDouble) - whole).abs().max();
    INFO(at::IntArrayRef(shape));
    CHECK(error.item<double>() < 1e-5);
  }
  auto plain = torch::randn({30, 20}), turned = plain.t().contiguous().t();
  const auto gradient = torch::randn({30, 20});
  CHECK(torch::allclose(after_steps(plain, gradient, options), after_steps(turned, gradient, options)));
  auto& memory = lt::HostMemory::counted();
  auto weight = torch::randn({2048, 4096}).requires_grad_();
  weight.mutable_grad() = torch::randn_like(weight);
  lt::Adafactor optimizer({weight});
  memory.reset_peak();
  const auto before = memory.allocated_bytes();
  optimizer.step();
  CHECK(memory.peak_bytes() - before < 20 << 20);  // parts of 4 MiB, beside a parameter of 32
}

TEST_CASE("Adafactor gives a weight in any memory format, and its first moment, a contiguous one's bits") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  torch::manual_seed(4);
  const auto last = at::MemoryFormat::ChannelsLast;
  for (const at::Tensor& other :
       {torch::randn({1, 16, 3, 3}).to(type, false, false, last),  // the matrices of both are views
        torch::randn({34}).to(type).as_strided({2, 1, 17}, {1, 1, 2}),
        torch::randn({6, 16, 3, 3}).to(type, false, false, last), torch::randn({20, 30}).to(type).t()}) {
    CAPTURE(type, other.sizes(), other.strides());
    auto plain = other.contiguous().clone(at::MemoryFormat::Contiguous).requires_grad_();
    auto turned = other.clone(at::MemoryFormat::Preserve).requires_grad_();
    REQUIRE(turned.strides() == other.strides());
    lt::Adafactor a({plain}, {.beta1 = 0.9}), b({turned}, {.beta1 = 0.9});
    for (int step = 0; step < 3; ++step) {
      plain.mutable_grad() = torch::randn(other.sizes()).to(type);
      turned.mutable_grad() = torch::empty_like(turned).copy_(plain.grad());
      a.step(), b.step();
    }
    CHECK(plain.equal(turned));
    CHECK_FALSE(plain.equal(other));
    const auto key = "exp_avg";
    CHECK(a.state_of(plain).get<at::Tensor>(key).equal(b.state_of(turned).get<at::Tensor>(key)));
  }
}

TEST_CASE("Adafactor scales by the root mean square of a large parameter, right to 1e-5") {
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    auto weight = torch::full({1024, 1024}, 0.02, type).requires_grad_();  // an fp32 sum is 4e-4 off
    const double before = weight.detach().view(-1)[0].item<double>();
    weight.mutable_grad() = torch::ones_like(weight);
    lt::Adafactor optimizer({weight}, {.lr = 0.25, .relative_step = false, .clip_threshold = 2});
    optimizer.step();
    CHECK(weight.to(torch::kDouble).mean().item<double>() == Approx(before * 0.75).epsilon(3e-5));
  }
}

TEST_CASE("Adafactor keeps means of rows and columns") {
  const auto matrix = torch::zeros({100, 50}), bias = torch::zeros({50}), kernel = torch::zeros({8, 4, 3});
  const lt::Adafactor plain({matrix, bias, kernel}), momentum({matrix}, {.beta1 = 0.9});
  const auto& group = plain.param_groups()[0];
  CHECK(lt::Adafactor::state_bytes(group, matrix) == 4 * 150);
  CHECK(lt::Adafactor::state_bytes(group, bias) == 4 * 50);
  CHECK(lt::Adafactor::state_bytes(group, kernel) == 4 * (32 + 24));
  CHECK(lt::Adafactor::state_bytes(momentum.param_groups()[0], matrix) == 4 * (150 + 5000));
}

TEST_CASE("Adafactor keeps changes of 16-bit weights that rounding to the nearest loses") {
  for (const auto& [type, rate] : {std::pair{torch::kBFloat16, 1e-4}, {torch::kHalf, 1e-5}}) {
    auto weight = torch::ones({200, 100}, type).requires_grad_();
    lt::Adafactor optimizer({weight}, {.lr = rate, .relative_step = false, .scale_parameter = false});
    for (int step = 0; step < 20; ++step) weight.mutable_grad() = torch::ones_like(weight), optimizer.step();
    CHECK(weight.to(torch::kDouble).mean().item<double>() == Approx(1 - 20 * rate).margin(rate));
  }
}

TEST_CASE("Adafactor continues from its saved state, and an overflow changes nothing") {
  auto straight = recorded::parameters(torch::kFloat), halved = recorded::parameters(torch::kFloat);
  lt::Adafactor a(straight, {.beta1 = 0.9}), b(halved, {.beta1 = 0.9});
  recorded::run(a, straight, 0, 12), recorded::run(b, halved, 0, 5);
  std::vector<at::Tensor> rest;
  for (const auto& parameter : halved) rest.push_back(parameter.detach().clone().requires_grad_());
  lt::Adafactor c(rest, {.beta1 = 0.9});
  for (std::size_t i = 0; i < rest.size(); ++i) c.load_state_of(rest[i], b.state_of(halved[i]));
  recorded::run(c, rest, 5, 12);
  CHECK(recorded::flat(straight).equal(recorded::flat(rest)));
  CHECK(recorded::flat_state(a, straight).equal(recorded::flat_state(c, rest)));
  const auto before = recorded::flat(rest), state = recorded::flat_state(c, rest);
  for (auto& parameter : rest) parameter.mutable_grad() = torch::full_like(parameter, NAN);
  c.step({}, torch::ones({}));
  CHECK(recorded::flat(rest).equal(before));
  CHECK(recorded::flat_state(c, rest).equal(state));
}

TEST_CASE("Adafactor refuses options out of range, with their values") {
  const auto make = [](lt::AdafactorOptions options) {
    lt::Adafactor({torch::zeros({2}).requires_grad_()}, options);
  };
  CHECK_THROWS_WITH(make({.decay = 0.8}), Catch::Contains("Adafactor needs") && Catch::Contains("decay 0.8"));
  CHECK_THROWS_WITH(make({.clip_threshold = 0}), Catch::Contains("clip_threshold 0"));
}

}  // namespace adafactor_test
