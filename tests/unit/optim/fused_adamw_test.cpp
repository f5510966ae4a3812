// SPDX-License-Identifier: MIT
// FusedAdamW against torch.optim.AdamW, recorded by tests/parity/training.py.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>

#include "support/reference.hpp"

namespace lt = looptorch;

namespace {

std::vector<at::Tensor> parameters(at::ScalarType type) {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < reference::shapes().size(); ++i)
    result.push_back(reference::wave(reference::shapes()[i], static_cast<double>(i), type).requires_grad_());
  return result;
}

void set_gradients(std::vector<at::Tensor>& parameters, int64_t step, double factor = 1.0) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool none = i == 1 && step >= 3 && step <= 5;
    const double phase = 0.3 * static_cast<double>(step) + static_cast<double>(i);
    parameters[i].mutable_grad() =
        none ? at::Tensor()
             : reference::wave(reference::shapes()[i], phase, parameters[i].scalar_type()) *
                   (factor * static_cast<double>(1 + step));
  }
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().flatten());
  return torch::cat(parts);
}

at::Tensor flat_moments(const lt::FusedAdamW::Moments& moments) {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < moments.first.size(); ++i)
    parts.insert(parts.end(), {moments.first[i], moments.second[i]});
  return flat(parts);
}

void compare(const std::string& name, at::ScalarType type, lt::FusedAdamWOptions options, double tolerance) {
  const auto& recorded = reference::tensors("training");
  auto params = parameters(type);
  lt::FusedAdamW optimizer(params, options);
  for (int64_t step = 0; step < 12; ++step) {
    set_gradients(params, step);
    optimizer.step();
    INFO(name << " step " << step);
    CHECK(reference::difference(flat(params), recorded.at("adamw." + name + ".history")[step]) < tolerance);
  }
  CHECK(reference::difference(flat_moments(optimizer.moments()[0]),
                              recorded.at("adamw." + name + ".moments")) < tolerance * 100);
  CHECK(optimizer.moments()[0].steps[1].item<double>() == 9);
}

}  // namespace

TEST_CASE("FusedAdamW has PyTorch's numbers, with a parameter that has no gradient for a while") {
  compare("default64", torch::kDouble, {}, 1e-14);
  compare("default32", torch::kFloat, {}, 1e-6);
  compare("other64", torch::kDouble, {.lr = 3e-2, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.3},
          1e-13);
  compare("amsgrad64", torch::kDouble, {.lr = 1e-2, .amsgrad = true}, 1e-13);
  compare("nodecay32", torch::kFloat, {.lr = 1e-2, .weight_decay = 0.0}, 1e-6);
}

TEST_CASE("a pending factor folds into the kernel, from a number or from a device tensor") {
  for (const bool on_device : {false, true}) {
    auto plain = parameters(torch::kFloat), folded = parameters(torch::kFloat);
    lt::FusedAdamW one(plain), two(folded);
    for (int64_t step = 0; step < 12; ++step) {
      set_gradients(plain, step), set_gradients(folded, step, 1024.0);
      lt::GradientScale scale;
      on_device ? scale.multiply(torch::tensor(1.0 / 1024)) : scale.multiply(1.0 / 1024);
      CHECK(two.can_fold(scale));
      one.step();
      two.step(scale, {});
    }
    CHECK(reference::difference(flat(plain), flat(folded)) < 1e-6);
  }
}

TEST_CASE("fp64 parameters do not fold, since the kernel's divisor is fp32") {
  auto params = parameters(torch::kDouble);
  lt::FusedAdamW optimizer(params);
  lt::GradientScale scale;
  CHECK(optimizer.can_fold(scale));
  scale.multiply(1.0 / 3);
  CHECK_FALSE(optimizer.can_fold(scale));
}

TEST_CASE("an overflow leaves parameters, moments and step counts as they are, bit for bit") {
  auto params = parameters(torch::kFloat);
  lt::FusedAdamW optimizer(params);
  for (int64_t step = 0; step < 4; ++step) set_gradients(params, step), optimizer.step();
  const auto before = flat(params).clone(), moments = flat_moments(optimizer.moments()[0]).clone();
  const auto steps = flat(optimizer.moments()[0].steps).clone();
  set_gradients(params, 6, INFINITY);
  optimizer.step({}, torch::tensor(true));
  CHECK(flat(params).equal(before));
  CHECK(flat_moments(optimizer.moments()[0]).equal(moments));
  CHECK(flat(optimizer.moments()[0].steps).equal(steps));
  set_gradients(params, 6);
  optimizer.step({}, torch::tensor(false));
  CHECK_FALSE(flat(params).equal(before));
}

TEST_CASE("groups have rates of their own, and schedules reach them") {
  auto params = parameters(torch::kDouble);
  lt::FusedAdamW optimizer({lt::FusedAdamW::group({params[0]}, {.lr = 0.0, .weight_decay = 0.0}),
                            lt::FusedAdamW::group({params[1], params[2]}, {.lr = 0.1})});
  const auto first = params[0].clone(), second = params[1].clone();
  set_gradients(params, 0);
  optimizer.step();
  CHECK(params[0].equal(first));
  CHECK_FALSE(params[1].equal(second));
  optimizer.param_groups()[0].options().set_lr(0.5);
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.5);
  set_gradients(params, 1);
  optimizer.step();
  CHECK_FALSE(params[0].equal(first));
}

TEST_CASE("a group added later without options takes the defaults") {
  auto params = parameters(torch::kDouble);
  lt::FusedAdamW optimizer(std::vector<at::Tensor>{params[0]}, {.lr = 0.25});
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({params[1]}));
  const auto before = params[1].clone();
  set_gradients(params, 0);
  optimizer.step();
  CHECK(optimizer.param_groups()[1].options().get_lr() == 0.25);
  CHECK_FALSE(params[1].equal(before));
}

TEST_CASE("a closure is evaluated with gradients, and its loss returned") {
  auto params = parameters(torch::kDouble);
  lt::FusedAdamW optimizer(params);
  const auto before = params[0].clone();
  torch::NoGradGuard no_grad;
  const auto loss = optimizer.step([&] {
    auto loss = params[0].pow(2).sum();
    loss.backward();
    return loss;
  });
  CHECK(loss.item<double>() == Approx(before.pow(2).sum().item<double>()));
  CHECK_FALSE(params[0].equal(before));
}

TEST_CASE("options out of range are refused with their values") {
  const auto make = [](lt::FusedAdamWOptions options) { lt::FusedAdamW(parameters(torch::kFloat), options); };
  CHECK_THROWS_WITH(make({.lr = -1}), Catch::Contains("lr -1"));
  CHECK_THROWS_WITH(make({.betas = {0.9, 1.0}}), Catch::Contains("0.9 and 1"));
  CHECK_THROWS_AS(make({.eps = NAN}), lt::UsageError);
  CHECK_THROWS_AS(make({.weight_decay = -0.1}), lt::UsageError);
  CHECK_THROWS_AS(lt::FusedAdamW::group({}, {.lr = -1}), lt::UsageError);
}
