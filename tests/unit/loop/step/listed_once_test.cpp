// SPDX-License-Identifier: MIT
// Optimizers that would move a weight several times a step are refused, with its names.
//
// Tests loop/step: trained_parameters
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

struct TwoImpl : torch::nn::Module {
  at::Tensor a = register_parameter("a", torch::ones({2}));
  at::Tensor b = register_parameter("b", torch::ones({2}));
};
TORCH_MODULE(Two);

/// `a` is registered as `head.a`, too.
struct TiedImpl : torch::nn::Module {
  TiedImpl() { register_module("two", two), register_parameter("head", two->a); }
  Two two;
};
TORCH_MODULE(Tied);

at::Tensor objective(Two& net, const at::Tensor& x) { return ((net->a + net->b) * x).sum(); }
at::Tensor of_tied(Tied& net, const at::Tensor& x) { return objective(net->two, x); }

const std::vector<at::Tensor> kBatches(4, torch::ones({2}));

/// Returns what fit and step both say to an optimizer; the weights stay as they are.
template <class Optimizer>
std::string refusal(Two net, Optimizer& optimizer) {
  std::string of_fit = "none", of_step = "none";
  const at::Tensor before = net->a.detach().clone();
  try {
    lt::Trainer(net, optimizer, objective).fit(kBatches, {.max_steps = 1});
  } catch (const lt::UsageError& error) {
    of_fit = error.what();
  }
  try {
    lt::Trainer(net, optimizer, objective).step(kBatches[0]);
  } catch (const lt::UsageError& error) {
    of_step = error.what();
  }
  CHECK(of_fit == of_step);
  CHECK(net->a.detach().equal(before));
  return of_fit;
}

std::vector<torch::optim::OptimizerParamGroup> two_groups(const Two& net) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{net->a, net->b});
  groups.emplace_back(std::vector<at::Tensor>{net->a});
  return groups;
}

}  // namespace

TEST_CASE("a parameter that LibTorch's optimizers list twice is refused, with its name") {
  Two net;
  torch::optim::SGD sgd({net->a, net->a, net->b}, 0.1);
  CHECK(
      refusal(net, sgd) ==
      "the optimizer of update, torch::optim::SGD, lists parameters more than once, and would update them as often "
      "in each step: a. Give it each parameter once, or take one of looptorch's optimizers, such as FusedSGD or "
      "FusedAdamW, which update it once");
  torch::optim::Adam adam({net->b, net->a, net->b, net->a, net->a}, torch::optim::AdamOptions(0.1));
  CHECK_THAT(refusal(net, adam),
             Catch::Contains("torch::optim::Adam, lists") && Catch::Contains("each step: b; a. "));
  torch::optim::AdamW grouped(two_groups(net), torch::optim::AdamWOptions(0.1));
  CHECK_THAT(refusal(net, grouped),
             Catch::Contains("torch::optim::AdamW, lists") && Catch::Contains("each step: a. "));
  torch::optim::LBFGS lbfgs({net->a, net->a}, torch::optim::LBFGSOptions(0.1));
  CHECK_THAT(refusal(net, lbfgs), Catch::Contains("each step: a. "));
  const at::Tensor outside = torch::ones({3, 1}).requires_grad_();
  torch::optim::SGD of_other({net->a, outside, outside}, 0.1);
  CHECK_THAT(refusal(net, of_other),
             Catch::Contains("each step: a parameter of shape [3, 1] outside of the model"));
  torch::optim::SGD once({net->a, net->b}, 0.1);
  lt::Trainer(net, once, objective).fit(kBatches, {.max_steps = 1});
  CHECK(net->a[0].item<double>() == Approx(0.9));
}

TEST_CASE("a tensor that is registered under two names is refused with both") {
  Tied net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, of_tied);
  CHECK_THROWS_WITH(trainer.fit(kBatches), Catch::Contains(": head, which is also two.a. Give it each"));
}

TEST_CASE("looptorch's optimizers update a parameter that is listed twice once") {
  Tied net;
  lt::FusedSGD sgd(net->parameters(), {.lr = 0.1});
  lt::Trainer trainer(net, sgd, of_tied);
  trainer.fit(kBatches, {.max_steps = 1});
  CHECK(net->two->a[0].item<double>() == Approx(0.9));
  CHECK(net->two->b[0].item<double>() == Approx(0.9));
}

TEST_CASE("two optimizers may train one parameter, and each of several updates is checked") {
  Two net;
  torch::optim::SGD one({net->a}, 0.1), two({net->a, net->b}, 0.1), twice({net->b, net->b}, 0.1);
  lt::Trainer shared(net, lt::Update{one, objective}, lt::Update{two, objective});
  shared.fit(kBatches, {.max_steps = 1});
  CHECK(net->a[0].item<double>() == Approx(0.8));
  lt::Trainer wrong(net, lt::Update{one, objective}, lt::Update{twice, objective, {.name = "head"}});
  CHECK_THROWS_WITH(wrong.fit(kBatches),
                    Catch::Contains("the optimizer of head, ") && Catch::Contains("each step: b."));
}

TEST_CASE("a parameter that joins an optimizer again is refused as the next window begins") {
  Two net;
  torch::optim::SGD sgd({net->a, net->b}, 0.1);
  lt::Trainer trainer(net, sgd, objective, lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                                                    if (window.run.progress().step == 2)
                                                      sgd.param_groups()[0].params().push_back(net->a);
                                                  }});
  CHECK_THROWS_WITH(trainer.fit(kBatches), Catch::Contains("each step: a."));
  CHECK(trainer.progress().step == 2);
  CHECK(net->a[0].item<double>() == Approx(0.8));
}
