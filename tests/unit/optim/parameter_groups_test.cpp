// SPDX-License-Identifier: MIT
// Parameter groups by name: which parameter lands where, what is refused, and the no-decay recipe.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/optim/parameter_groups.hpp>

#include <ctime>

namespace lt = looptorch;

namespace {

struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const at::Tensor& weight) { register_parameter("weight", weight); }
};
TORCH_MODULE(Tied);

/// Two layers with a norm between them, and a head whose weight is the embedding's.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("embedding", embedding);
    register_module("encoder", encoder);
    register_module("head", head);
  }
  torch::nn::Embedding embedding{5, 4};
  torch::nn::Sequential encoder{torch::nn::Linear(4, 4), torch::nn::LayerNorm(std::vector<int64_t>{4})};
  Tied head{embedding->weight};
};
TORCH_MODULE(Net);

/// A module whose parameters have the given names.
struct Named : torch::nn::Module {
  explicit Named(const std::vector<std::string>& names, int64_t dim = 1) {
    for (const auto& name : names)
      register_parameter(name, torch::ones(std::vector<int64_t>(static_cast<std::size_t>(dim), 2)));
  }
};

/// The names of each group's parameters, as the model calls them first.
std::vector<std::vector<std::string>> names(const torch::nn::Module& net,
                                            const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  std::vector<std::vector<std::string>> result;
  for (const auto& group : groups) {
    auto& list = result.emplace_back();
    for (const auto& parameter : group.params())
      for (const auto& item : net.named_parameters())
        if (item.value().is_same(parameter)) {
          list.push_back(item.key());
          break;
        }
  }
  return result;
}

using Names = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE("the no-decay recipe: norms and biases in a group of their own") {
  Net net;
  lt::FusedAdamW optimizer(lt::parameter_groups<lt::FusedAdamW>(
      *net, {.lr = 1e-4}, {{lt::norms_and_biases(*net), {.lr = 1e-4, .weight_decay = 0}}}));
  CHECK(names(*net, optimizer.param_groups()) ==
        Names{{"embedding.weight", "encoder.0.weight"},
              {"encoder.0.bias", "encoder.1.weight", "encoder.1.bias"}});

  const auto ones = net->encoder[1]->as<torch::nn::LayerNorm>()->weight;
  const auto kernel = net->encoder[0]->as<torch::nn::Linear>()->weight;
  const auto before = kernel.clone();
  for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  optimizer.step();
  CHECK(ones.equal(torch::ones({4})));
  CHECK(torch::allclose(kernel, before * (1 - 1e-4 * 1e-2), 0, 1e-9));
  CHECK_FALSE(kernel.equal(before));
}

TEST_CASE("decay_matrices_only: one call, with rules too, and for LibTorch's optimizers") {
  Net net;
  const std::vector<lt::GroupRule<lt::FusedAdamWOptions>> slow{
      {{"encoder.*"}, {.lr = 1e-5, .weight_decay = 0.5}}};
  lt::FusedAdamW optimizer(
      lt::decay_matrices_only<lt::FusedAdamW>(*net, {.lr = 1e-4, .weight_decay = 0.25}, slow));
  CHECK(names(*net, optimizer.param_groups()) ==
        Names{{"embedding.weight"},
              {"encoder.0.weight"},
              {},
              {"encoder.0.bias", "encoder.1.weight", "encoder.1.bias"}});
  const std::vector<double> rates{1e-4, 1e-5, 1e-4, 1e-5}, kept{1 - 1e-4 * 0.25, 1 - 1e-5 * 0.5, 1.0, 1.0};
  torch::NoGradGuard no_gradients;
  for (auto& parameter : net->parameters())
    parameter.fill_(1), parameter.mutable_grad() = torch::zeros_like(parameter);
  optimizer.step();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    CHECK(optimizer.param_groups()[i].options().get_lr() == rates[i]);
    for (const auto& parameter : optimizer.param_groups()[i].params())
      CHECK(torch::allclose(parameter, torch::full_like(parameter, kept[i]), 0, 1e-7));
  }

  torch::optim::AdamW plain(
      lt::decay_matrices_only<torch::optim::AdamW>(net, torch::optim::AdamWOptions(1e-3).weight_decay(0.25)));
  REQUIRE(plain.param_groups().size() == 2);
  CHECK(plain.param_groups()[0].params().size() == 2);
  CHECK(static_cast<const torch::optim::AdamWOptions&>(plain.param_groups()[0].options()).weight_decay() ==
        0.25);
  CHECK(static_cast<const torch::optim::AdamWOptions&>(plain.param_groups()[1].options()).weight_decay() ==
        0.0);
}

TEST_CASE("a rule inherits nothing: options that it omits have the defaults of their type") {
  Net net;
  const auto groups = lt::parameter_groups<lt::FusedAdamW>(
      *net, {.lr = 1e-4}, {{lt::norms_and_biases(*net), {.weight_decay = 0}}});
  CHECK(groups[0].options().get_lr() == 1e-4);
  CHECK(groups[1].options().get_lr() == 1e-3);
}

TEST_CASE("the first rule that matches takes a parameter; groups without any keep their place") {
  Net net;
  const auto groups = lt::parameter_groups<lt::FusedSGD>(
      net, {.lr = 1},
      {{{"encoder.0.*", "*.0.bias"}, {.lr = 2}}, {{"*.0.weight"}, {.lr = 3}}, {{"*"}, {.lr = 4}}});
  CHECK(names(*net, groups) == Names{{},
                                     {"encoder.0.weight", "encoder.0.bias"},
                                     {},
                                     {"embedding.weight", "encoder.1.weight", "encoder.1.bias"}});
  for (std::size_t i = 0; i < groups.size(); ++i)
    CHECK(groups[i].options().get_lr() == static_cast<double>(i + 1));
  lt::FusedSGD optimizer(groups);
  for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  const auto before = net->embedding->weight.clone();
  optimizer.step();
  CHECK(torch::allclose(net->embedding->weight, before - 4));
}

TEST_CASE("without rules there is one group; frozen parameters are in it, tied ones once") {
  Net net;
  net->encoder[0]->as<torch::nn::Linear>()->weight.set_requires_grad(false);
  const auto groups = lt::parameter_groups<lt::FusedSGD>(*net, {.lr = 0.5});
  CHECK(names(*net, groups) == Names{{"embedding.weight", "encoder.0.weight", "encoder.0.bias",
                                      "encoder.1.weight", "encoder.1.bias"}});
}

TEST_CASE("a tied weight answers to each of its names") {
  Net net;
  const auto groups = lt::parameter_groups<lt::FusedSGD>(*net, {}, {{{"head.*"}, {.lr = 0.5}}});
  CHECK(names(*net, groups)[1] == std::vector<std::string>{"embedding.weight"});
}

TEST_CASE("a pattern that matches nothing is named, with what there is") {
  Net net;
  const auto make = [&](const std::string& pattern) {
    return lt::parameter_groups<lt::FusedSGD>(*net, {}, {{{"embedding.*", pattern}, {.lr = 0.5}}});
  };
  CHECK_THROWS_AS(make("decoder.*"), lt::UsageError);
  CHECK_THROWS_WITH(make("decoder.*"),
                    "no parameter of the model matches 'decoder.*'; it has 5: embedding.weight, "
                    "encoder.0.weight, encoder.0.bias, encoder.1.weight, encoder.1.bias");
  const Named many({"a", "b", "c", "d", "e", "f", "g"});
  CHECK_THROWS_WITH(lt::parameter_groups<lt::FusedSGD>(many, {}, {{{"x"}, {}}}),
                    Catch::Contains("it has 7: a, b, c, d, e, f, ..."));
  CHECK_NOTHROW(make("encoder.*"));
}

TEST_CASE("options of a rule are checked as any") {
  Net net;
  CHECK_THROWS_AS(lt::parameter_groups<lt::FusedSGD>(*net, {}, {{{"*"}, {.lr = -1}}}), lt::UsageError);
}

TEST_CASE("names with a pattern's characters are taken literally by norms_and_biases") {
  const Named net({"a*", "ab"});
  CHECK(lt::norms_and_biases(net) == std::vector<std::string>{"a\\*", "ab"});
  CHECK(lt::norms_and_biases(Named({"weight"}, 2)).empty());
  const auto groups =
      lt::parameter_groups<lt::FusedSGD>(net, {}, {{{lt::norms_and_biases(net)[0]}, {.lr = 1}}});
  CHECK(names(net, groups) == Names{{"ab"}, {"a*"}});
}

TEST_CASE("LibTorch's own optimizers take the groups too, from a pointer as well") {
  const auto net = std::make_shared<NetImpl>();
  using torch::optim::AdamWOptions;
  torch::optim::AdamW optimizer(lt::parameter_groups<torch::optim::AdamW>(
      net, AdamWOptions(1e-3), {{lt::norms_and_biases(net), AdamWOptions(1e-4).weight_decay(0)}}));
  REQUIRE(optimizer.param_groups().size() == 2);
  const auto& options = static_cast<const AdamWOptions&>(optimizer.param_groups()[1].options());
  CHECK(options.lr() == 1e-4);
  CHECK(options.weight_decay() == 0);
  CHECK(optimizer.param_groups()[1].params().size() == 3);
  CHECK(optimizer.param_groups()[0].options().get_lr() == 1e-3);
}

TEST_CASE("many parameters are named in linear time") {
  std::vector<std::string> given;
  while (given.size() < 40'000) given.push_back("p" + std::to_string(given.size()));
  const Named net(given);
  const std::clock_t start = std::clock();  // of the processor: other tests run beside this one
  const auto named = lt::detail::named_parameters(static_cast<const torch::nn::Module&>(net));
  CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
  CHECK((named.size() == given.size() && named.back().names.front() == given.back()));
}
