// SPDX-License-Identifier: MIT
// Sparse gradients: trained where the optimizer takes them, refused in a sentence before anything moves where
// a policy or an optimizer does not.
// Runs on every device.
// Tests loop/step: update_step
#include "support/precompiled.hpp"

#include <looptorch/policies/autopsy.hpp>
#include <looptorch/trainer.hpp>

#include "support/place.hpp"

namespace lt = looptorch;

namespace {

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse)
      : words(
            register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(7, 4).sparse(sparse)))),
        head(register_module("head", torch::nn::Linear(4, 1))) {
    to(lt::testing::place(), torch::kDouble);
  }
  torch::nn::Embedding words;
  torch::nn::Linear head;
};
TORCH_MODULE(Words);

Words model(bool sparse) {
  torch::manual_seed(3);
  return Words(sparse);
}
at::Tensor objective(Words& net, const at::Tensor& batch) {
  return net->head(net->words(batch)).tanh().pow(2).mean();
}
std::vector<at::Tensor> data() {
  std::vector<at::Tensor> batches;
  for (int64_t i = 0; i < 6; ++i) batches.push_back(torch::tensor({i % 7, (3 * i + 1) % 7}));
  return batches;
}
std::vector<at::Tensor> copies(Words& net) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : net->parameters()) result.push_back(parameter.detach().clone());
  return result;
}
double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  return largest;
}

template <class Optimizer, class... Policies>
void check_refused(const std::string& who, Policies... policies) {
  INFO(who);
  Words net = model(true);
  Optimizer optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(net, optimizer, objective, policies...);
  const auto before = copies(net);
  CHECK_THROWS_WITH(trainer.fit(data()),
                    Catch::Contains(who + " takes dense gradients only; that of a parameter of "
                                          "shape [7, 4] is Sparse"));
  CHECK_THROWS_AS(trainer.fit(data()), lt::UsageError);
  CHECK(distance(copies(net), before) == 0.0);
  CHECK(trainer.progress().step == 0);
}

}  // namespace

TEST_CASE("an optimizer that takes sparse gradients is given them, accumulated too") {
  Words sparse = model(true), dense = model(false);
  torch::optim::SGD a(sparse->parameters(), 0.5), b(dense->parameters(), 0.5);
  const auto before = copies(sparse);
  lt::Trainer one(sparse, a, objective, lt::Accumulate<2>{}), two(dense, b, objective, lt::Accumulate<2>{});
  one.fit(data(), {.epochs = 2}), two.fit(data(), {.epochs = 2});
  CHECK(distance(copies(sparse), copies(dense)) < 1e-14);
  CHECK(distance(copies(sparse), before) > 1e-3);
}

TEST_CASE("Autopsy checks sparse gradients, also those of a batch that looks up no row") {
  Words watched = model(true), plain = model(true);
  torch::optim::SGD a(watched->parameters(), 0.5), b(plain->parameters(), 0.5);
  const auto loss = [](Words& net, const at::Tensor& batch) {
    return net->head(net->words(batch)).tanh().sum();
  };
  std::vector<at::Tensor> batches = data();
  batches[2] = torch::empty({0}, at::kLong), batches[4] = torch::tensor({3, 3, 3});
  lt::Trainer one(watched, a, loss, lt::Autopsy{});
  lt::Trainer two(plain, b, loss);
  one.fit(batches), two.fit(batches);
  CHECK(distance(copies(watched), copies(plain)) == 0.0);
}

TEST_CASE("policies that read gradients refuse sparse ones in a sentence") {
  using torch::optim::SGD;
  check_refused<SGD>("ClipGradNorm", lt::ClipGradNorm{1.0});
  check_refused<SGD>("ClipGradValue", lt::ClipGradValue{1.0});
  check_refused<SGD>("Autocast<fp16>", lt::Autocast<lt::fp16>{});
}

TEST_CASE("fused optimizers refuse sparse gradients before any parameter moves") {
  Words net = model(true);
  lt::FusedAdamW adamw(lt::parameter_groups<lt::FusedAdamW>(*net, {}, {{{"words.*"}, {}}}));
  lt::Trainer trainer(net, adamw, objective);
  const auto before = copies(net);
  CHECK_THROWS_WITH(trainer.fit(data()), Catch::Contains("leave its layer's option `sparse` off"));
  CHECK(distance(copies(net), before) == 0.0);
  CHECK(adamw.state_of(net->head->weight).empty());
}
