// SPDX-License-Identifier: MIT
// Tests adapters: lora, lora_layer
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora.hpp>
#include <looptorch/adapters/lora_layer.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "unit/adapters/adapted_net.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using adapted::Net;
using adapted::wave;
using Catch::Contains;

namespace {

/// Gives B values, as training would.
template <class Model>
void teach(Model& net) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : net->named_parameters())
    if (item.key().find("lora_B") != std::string::npos)
      item.value().copy_(0.3 * wave(item.value().sizes(), 3));
}

lt::TensorMap copies(const Net& net) {
  lt::TensorMap tensors = lt::state_dict(net);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().clone();
  return tensors;
}

std::vector<std::string> trained(const Net& net) {
  std::vector<std::string> names;
  for (const auto& item : net->named_parameters())
    if (item.value().requires_grad()) names.push_back(item.key());
  return names;
}

struct TableImpl : torch::nn::Module {
  explicit TableImpl(const at::Tensor& weight) : weight(register_parameter("weight", weight)) {}
  at::Tensor weight;
};
TORCH_MODULE(Table);

/// A language model whose head shares its embedding's weight, or a view of it.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(bool as_view = false)
      : fc(register_module("fc", adapted::Linear(4, 4))),
        head(register_module("head", adapted::Linear(torch::nn::LinearOptions(4, 7).bias(false)))),
        table(register_module("table", Table(as_view ? head->weight.detach()[2] : head->weight))) {}
  at::Tensor forward(const at::Tensor& ids) { return head(fc(torch::embedding(table->weight, ids))); }
  adapted::Linear fc, head;
  Table table;
};
TORCH_MODULE(Tied);

template <class Layer>
concept CanBeAdapted = requires {
  typename lt::Lora<Layer>;
};
static_assert(CanBeAdapted<torch::nn::Linear> && !CanBeAdapted<torch::nn::LayerNorm>);

struct Batch {
  at::Tensor x, y;
};

lt::Loss objective(Net& net, const Batch& batch) {
  return {torch::mse_loss(net(batch.x), batch.y), batch.x.size(0)};
}

std::vector<Batch> batches() {
  std::vector<Batch> result;
  for (int i = 0; i < 4; ++i) result.push_back({wave({6, 5}, i), wave({6, 3}, 2 * i)});
  return result;
}

}  // namespace

TEST_CASE("without an adapter a Lora layer is its layer, names included", "[lora]") {
  torch::manual_seed(1);
  const adapted::Linear ours(5, 7);
  torch::manual_seed(1);
  torch::nn::Linear plain(5, 7);
  CHECK(lt::state_dict(ours).size() == lt::state_dict(plain).size());
  adapted::Linear callable = ours;
  CHECK(torch::equal(callable(wave({3, 5}, 0)), plain(wave({3, 5}, 0))));
  torch::nn::Sequential sequence(adapted::Linear(5, 7), adapted::Linear(7, 2));
  CHECK(sequence->forward(wave({3, 5}, 0)).sizes() == at::IntArrayRef({3, 2}));
  CHECK_THROWS_WITH(ours->clone(), Contains("cannot be cloned"));
}

TEST_CASE("adapters begin without effect, and are all that is trained", "[lora]") {
  Net net;
  const auto x = wave({4, 5}, 0.5);
  const auto before = net(x);
  CHECK(lt::add_lora(*net, {.rank = 2, .alpha = 5, .patterns = {"fc1", "o*"}}) == 2);
  CHECK(torch::equal(net(x), before));
  CHECK(trained(net) == std::vector<std::string>{"fc1.lora_A.weight", "fc1.lora_B.weight",
                                                 "out.lora_A.weight", "out.lora_B.weight"});
  CHECK(net->fc1->a().sizes() == at::IntArrayRef({2, 5}));
  CHECK(net->fc1->b().sizes() == at::IntArrayRef({7, 2}));
  CHECK(net->fc1->a().abs().max().item<float>() > 0.0F);
}

TEST_CASE("merged adapters give the same numbers, and come out again bit for bit", "[lora]") {
  const auto type = GENERATE(torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf);
  Net net;
  net->to(type);
  lt::add_lora(*net, {.rank = 2, .alpha = 5, .rank_stabilized = type == torch::kDouble});
  teach(net);
  net->eval();
  const auto x = wave({4, 5}, 0.5).to(type);
  const auto own = copies(net);
  const auto adapted = net(x);
  CHECK(adapted.scalar_type() == type);

  lt::merge_lora(*net);
  lt::merge_lora(*net);  // once is enough
  const double tolerance = type == torch::kDouble ? 1e-12 : type == torch::kFloat ? 1e-5 : 3e-2;
  CHECK(torch::allclose(net(x), adapted, tolerance, tolerance));
  CHECK_FALSE(torch::equal(net->fc1->weight, own.at("fc1.weight")));
  net->train();
  CHECK_THROWS_WITH(net(x), Contains("merged layers cannot be trained"));

  lt::unmerge_lora(*net);
  lt::unmerge_lora(*net);
  for (const auto& [name, tensor] : lt::state_dict(net)) CHECK(torch::equal(tensor, own.at(name)));
  net->eval();
  CHECK(torch::equal(net(x), adapted));

  lt::fold_lora(*net);
  CHECK(lt::state_dict(net).size() == 5);  // the names that it had before
  CHECK(torch::allclose(net(x), adapted, tolerance, tolerance));
  CHECK_THROWS_AS(lt::fold_lora(*net), lt::UsageError);
  CHECK(lt::add_lora(*net, {.rank = 3}) == 3);  // and it may learn anew
}

TEST_CASE("dropout acts on the adapter's input, in training only", "[lora]") {
  Net net;
  lt::add_lora(*net, {.rank = 2, .dropout = 0.5, .patterns = {"fc1"}});
  teach(net);
  const auto x = wave({4, 5}, 0.5);
  const auto base = at::linear(x, net->fc1->weight, net->fc1->bias);
  torch::manual_seed(7);
  const auto found = net->fc1(x);
  torch::manual_seed(7);
  const auto dropped = torch::dropout(x, 0.5, true);
  const auto expected = base + at::linear(at::linear(dropped, net->fc1->a()), net->fc1->b()) * 4.0;
  CHECK(torch::equal(found, expected));
  net->eval();
  CHECK(torch::equal(net->fc1(x), net->fc1(x)));
}

TEST_CASE("training adapters leaves the weights, and keeps moments for adapters alone", "[lora]") {
  torch::manual_seed(3);
  Net net;
  lt::add_lora(*net, {.rank = 2, .alpha = 4, .dropout = 0.1, .patterns = {"*"}});
  const auto own = copies(net);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0});
  const auto data = batches();
  trainer.fit(data, {.epochs = 2});

  std::int64_t adapter_bytes = 0;
  for (const auto& [name, tensor] : lt::state_dict(net)) {
    const bool is_adapter = name.find("lora_") != std::string::npos;
    CHECK(torch::equal(tensor, own.at(name)) != is_adapter);
    if (is_adapter) adapter_bytes += static_cast<std::int64_t>(tensor.nbytes());
    CHECK_FALSE(net->named_parameters()[name].grad().defined());
  }
  const auto moments = static_cast<std::int64_t>(trainer.held_memory().optimizer);
  CHECK(moments >= 2 * adapter_bytes);
  CHECK(moments <= 2 * adapter_bytes + 6 * 8);  // step counts
}

TEST_CASE("a resumed run of adapters continues bit for bit", "[lora]") {
  const auto data = batches();
  const auto run = [&](const lt::testing::TemporaryFolder& folder, std::vector<lt::FitOptions> fits) {
    lt::TensorMap last;
    for (lt::FitOptions& options : fits) {
      torch::manual_seed(5);
      Net net;
      lt::add_lora(*net, {.rank = 2, .alpha = 4, .dropout = 0.2, .patterns = {"fc1", "out"}});
      lt::AdamW8bit adam(net->parameters(), {.lr = 1e-2, .min_size = 1});
      lt::Trainer trainer(net, adam, objective, lt::SnapshotEvery{.folder = folder.path(), .epochs = 1});
      if (!last.empty()) options.resume = folder.path();
      trainer.fit(data, options);
      last = copies(net);
    }
    return last;
  };
  const lt::testing::TemporaryFolder one, two;
  const auto whole = run(one, {{.epochs = 3}}), resumed = run(two, {{.epochs = 1}, {.epochs = 3}});
  CHECK_FALSE(torch::equal(whole.at("fc1.lora_B.weight"), torch::zeros({7, 2})));
  for (const auto& [name, tensor] : whole) CHECK(torch::equal(tensor, resumed.at(name)));
}

TEST_CASE("adapters that cannot be are refused, and change nothing", "[lora]") {
  Net net;
  const auto refuses = [&](const lt::LoraOptions& options, const std::string& why) {
    CHECK_THROWS_AS(lt::add_lora(*net, options), lt::UsageError);
    CHECK_THROWS_WITH(lt::add_lora(*net, options), Contains(why));
    CHECK(trained(net).size() == 5);
  };
  refuses({.rank = 0}, "rank must be at least 1, got 0");
  refuses({.alpha = 0}, "alpha must be above 0, got 0");
  refuses({.alpha = std::nan("")}, "alpha must be above 0");
  refuses({.dropout = 1}, "dropout must be in [0, 1), got 1");
  refuses({.patterns = {}}, "at least one pattern");
  refuses({.patterns = {"fc1", "encoder.*"}},
          "no Lora layer of the model matches 'encoder.*'; it has 3: fc1, inner.fc1, out");
  CHECK_THROWS_WITH(lt::merge_lora(*net), Contains("call add_lora first"));
  CHECK_THROWS_WITH(lt::unmerge_lora(*net), Contains("call add_lora first"));
  lt::add_lora(*net, {.patterns = {"out"}});
  CHECK_THROWS_WITH(lt::add_lora(*net, {}), Contains("has adapters already, 1: out"));
}

TEST_CASE("an adapter on a tied weight computes, but is not merged into the other layer's weight", "[lora]") {
  Tied net;
  net->eval();
  const at::Tensor ids = torch::tensor({0, 3, 6}), before = net(ids);
  lt::add_lora(*net, {.rank = 2});
  CHECK(torch::equal(net(ids), before));
  teach(net);
  const at::Tensor adapted = net(ids), weight = net->table->weight.detach().clone();
  for (const auto& [call, name] :
       {std::pair{&lt::merge_lora, "merge_lora"}, std::pair{&lt::fold_lora, "fold_lora"}}) {
    CHECK_THROWS_AS(call(*net), lt::UsageError);
    CHECK_THROWS_WITH(call(*net), Contains(name) && Contains("weight of head is also table.weight"));
  }
  CHECK_FALSE(net->fc->is_merged());  // nothing is changed
  CHECK(torch::equal(net->table->weight, weight));
  CHECK(torch::equal(net(ids), adapted));

  Tied part(/*as_view=*/true);
  lt::add_lora(*part, {.rank = 2, .patterns = {"head"}});
  CHECK_THROWS_WITH(lt::merge_lora(*part), Contains("head is also table.weight"));
}

TEST_CASE("weights that share a storage and no element, and layers without adapters, are merged", "[lora]") {
  Tied net;
  net->eval();
  lt::add_lora(*net, {.rank = 2, .patterns = {"fc"}});
  teach(net);
  {
    const torch::NoGradGuard no_grad;
    const at::Tensor all = torch::randn({11, 4});
    net->fc->weight.set_data(all.slice(0, 0, 4));
    net->head->weight.set_data(all.slice(0, 4));
  }
  const at::Tensor ids = torch::tensor({0, 3, 6}), adapted = net(ids);
  lt::merge_lora(*net);
  CHECK(torch::allclose(net(ids), adapted, 1e-5, 1e-6));
  lt::fold_lora(*net);
  CHECK(torch::allclose(net(ids), adapted, 1e-5, 1e-6));
}

TEST_CASE("a layer that is registered twice is one layer, and is merged", "[lora]") {
  Net net;
  net->inner->register_module("again", net->fc1);
  lt::add_lora(*net, {.rank = 2, .patterns = {"fc1"}});
  teach(net);
  net->eval();
  const at::Tensor x = wave({4, 5}, 0.5), adapted = net(x);
  lt::merge_lora(*net);
  CHECK(torch::allclose(net(x), adapted, 1e-5, 1e-5));
}
