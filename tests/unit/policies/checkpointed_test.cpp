// SPDX-License-Identifier: MIT
// Checkpointed<Layer>: the layer as its users know it, and the policy of the same name.
// Tests memory/recompute: checkpointed_impl
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"

namespace lt = looptorch;

namespace {

constexpr std::int64_t kWidth = 6;

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(double p = 0.2) : dropout(register_module("dropout", torch::nn::Dropout(p))) {
    register_module("linear", linear);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask = {}, double scale = 2) {
    ++runs;
    const at::Tensor y = x + dropout(torch::tanh(linear(norm(x)))) * scale;
    return mask.defined() ? y * mask : y;
  }
  torch::nn::Linear linear{kWidth, kWidth};
  torch::nn::BatchNorm1d norm{kWidth};
  torch::nn::Dropout dropout;
  int runs = 0;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(2.0)})
};
TORCH_MODULE(Layer);

/// Layers in Sequential, in a list, and one that is called with more arguments.
template <class L>
struct NetImpl : torch::nn::Module {
  NetImpl() : last(register_module("last", L(0.4))) {
    for (int i = 0; i < 2; ++i) sequence->push_back(L(0.1 * i));
    register_module("sequence", sequence);
  }
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(last(sequence->forward(x)), torch::ones({kWidth}));
  }
  torch::nn::Sequential sequence;
  L last;
};
template <class L>
struct Net : torch::nn::ModuleHolder<NetImpl<L>> {
  Net() : torch::nn::ModuleHolder<NetImpl<L>>(std::make_shared<NetImpl<L>>()) {}
};

using Wrapped = lt::Checkpointed<Layer>;

std::vector<at::Tensor> data(std::int64_t count) {
  std::vector<at::Tensor> batches;
  for (std::int64_t i = 0; i < count; ++i) batches.push_back(torch::randn({4 + i % 3, kWidth}));
  return batches;
}

struct Objective {
  template <class L>
  at::Tensor operator()(Net<L>& net, const at::Tensor& x) const {
    return net->forward(x).pow(2).mean();
  }
};

/// What a seeded run leaves: parameters, buffers, the loss, the next random number.
template <class L, class... Policies>
std::vector<at::Tensor> trained(const Policies&... policies) {
  torch::manual_seed(3);
  Net<L> net;
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(net, optimizer, Objective{}, policies...);
  const auto result = trainer.fit(data(7), {.epochs = 2});
  std::vector<at::Tensor> state = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer);
  state.push_back(torch::tensor(result.loss, at::kDouble));
  state.push_back(torch::rand({2}));
  return state;
}

void check_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(torch::equal(a[i], b[i]));
}

template <class... Policies>
void check_trains_alike(const Policies&... policies) {
  const auto plain = trained<Layer>(policies...);
  check_same(plain, trained<Wrapped>(policies...));
  check_same(plain, trained<Wrapped>(policies..., Wrapped{}));
  check_same(plain, trained<Wrapped>(policies..., lt::When{false, Wrapped{}}));
  check_same(plain, trained<Wrapped>(policies..., Wrapped({.mode = lt::CheckpointMode::offload})));
}

}  // namespace

TEST_CASE("training with wrapped layers is training with plain ones, bit for bit") {
  check_trains_alike();
  check_trains_alike(lt::Accumulate<3>{}, lt::Autocast<lt::bf16>{}, lt::ClipGradNorm{0.1});
  torch::manual_seed(4);
  const auto held = data(3);
  check_trains_alike(lt::Accumulate<2>{}, lt::Autocast<lt::fp16>{}, lt::Validate{held, {.every = 2}},
                     lt::UnfreezeAt{{.epoch = 1, .patterns = {"last.*"}}});
}

namespace {

template <class L>
std::vector<at::Tensor> state_of(const Net<L>& net) {
  std::vector<at::Tensor> state = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer);
  state.push_back(torch::rand({2}));
  return state;
}

template <class L>
std::vector<at::Tensor> trained_by_two() {
  torch::manual_seed(3);
  Net<L> net;
  torch::optim::SGD last(net->last->parameters(), 0.1), others(net->sequence->parameters(), 0.1);
  const auto negative = [](Net<L>& net, const at::Tensor& x) { return -Objective{}(net, x) * 0.1; };
  lt::Trainer trainer(net, lt::Update{last, negative}, lt::Update{others, Objective{}}, lt::Accumulate<2>{},
                      lt::Autocast<lt::fp16>{});
  trainer.fit(data(6), {.epochs = 2});
  return state_of(net);
}

/// In a loop of one's own, whose last window is short.
template <class L>
std::vector<at::Tensor> trained_by_steps() {
  torch::manual_seed(3);
  Net<L> net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, Objective{}, lt::Accumulate<2>{}, lt::Autocast<lt::fp16>{});
  for (const at::Tensor& batch : data(5)) trainer.step(batch);
  trainer.finish_window();
  return state_of(net);
}

}  // namespace

TEST_CASE("several updates with wrapped layers, in fp16") {
  check_same(trained_by_two<Layer>(), trained_by_two<Wrapped>());
}

TEST_CASE("a loop of one's own with wrapped layers, in fp16") {
  check_same(trained_by_steps<Layer>(), trained_by_steps<Wrapped>());
}

TEST_CASE("names stay, and weights move both ways") {
  const lt::testing::TemporaryFolder folder;
  Net<Layer> plain;
  Net<Wrapped> wrapped;
  CHECK(plain->named_parameters().keys() == wrapped->named_parameters().keys());
  CHECK(plain->named_buffers().keys() == wrapped->named_buffers().keys());
  lt::save_safetensors(folder / "plain.safetensors", lt::state_dict(*plain));
  lt::load_weights(*wrapped, folder / "plain.safetensors");
  check_same(plain->parameters(), wrapped->parameters());
  Net<Layer> again;
  lt::save_safetensors(folder / "wrapped.safetensors", lt::state_dict(*wrapped));
  lt::load_weights(*again, folder / "wrapped.safetensors");
  check_same(again->parameters(), wrapped->parameters());
}

TEST_CASE("default arguments, braces and further arguments, by the holder and by forward") {
  Wrapped layer(0.0);
  layer->eval();
  const at::Tensor x = torch::randn({4, kWidth}), mask = torch::zeros({kWidth});
  const at::Tensor expected = static_cast<LayerImpl*>(layer.get())->forward(x);
  CHECK(torch::equal(layer(x), expected));
  CHECK(torch::equal(layer->forward(x), expected));
  CHECK(torch::equal(layer->forward(x, {}, 2.0), expected));
  CHECK(torch::equal((*layer).forward(x, {}, 2), expected));
  CHECK(torch::equal(layer(x, mask), mask.expand({4, kWidth})));
  torch::nn::Sequential sequence(layer, torch::nn::ReLU());
  CHECK(torch::equal(sequence->forward(x), torch::relu(expected)));
  CHECK(torch::equal(torch::nn::AnyModule(layer).forward(x, mask, 1.0), mask.expand({4, kWidth})));
  const int before = layer->runs;
  sequence->forward(x).sum().backward();
  CHECK(layer->runs == before + 2);
}

namespace {

struct ConstImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) const { return x.exp().sin(); }
};
TORCH_MODULE(Const);
struct NoexceptImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) noexcept { return x.exp().sin(); }
};
TORCH_MODULE(Noexcept);
struct OverloadedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.exp().sin(); }
  at::Tensor forward(const at::Tensor& x, double scale) const { return (x * scale).sin(); }
};
TORCH_MODULE(Overloaded);
struct TemplateImpl : torch::nn::Module {
  template <class... Xs>
  at::Tensor forward(const Xs&... xs) {
    return torch::cat({xs.exp()...}).sin();
  }
};
TORCH_MODULE(Template);

}  // namespace

TEST_CASE("const, noexcept, overloaded and template forwards, and layers without arguments") {
  const at::Tensor x = torch::randn({2, kWidth}).requires_grad_();
  auto one = lt::Checkpointed<Const>::make();
  auto two = lt::Checkpointed<Noexcept>::make();
  auto three = lt::Checkpointed<Overloaded>::make();
  auto four = lt::Checkpointed<Template>::make();
  const at::Tensor expected = x.exp().sin();
  for (const at::Tensor& y : {one(x), two->forward(x), three(x), four->forward(x)}) {
    CHECK(torch::equal(y, expected));
    const at::Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
    CHECK(torch::equal(gradient, torch::autograd::grad({x.exp().sin().sum()}, {x})[0]));
  }
  CHECK(torch::equal(three(x, 0.5), (x * 0.5).sin()));
  CHECK(torch::equal(four(x, x), torch::cat({expected, expected})));
}

TEST_CASE("one of LibTorch's own layers") {
  const auto run = [](auto layer) {
    torch::manual_seed(1);
    const at::Tensor x = torch::randn({3, 2, 8}).requires_grad_();
    for (at::Tensor& parameter : layer->parameters()) torch::nn::init::uniform_(parameter, -0.5, 0.5);
    layer(x).pow(2).sum().backward();
    std::vector<at::Tensor> results{x.grad(), torch::rand({2})};
    for (const at::Tensor& parameter : layer->parameters()) results.push_back(parameter.grad());
    return results;
  };
  const auto options = torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.3);
  check_same(run(torch::nn::TransformerEncoderLayer(options)),
             run(lt::Checkpointed<torch::nn::TransformerEncoderLayer>(options)));
}

TEST_CASE("what an empty holder, a copy and a clone are") {
  CHECK(Wrapped().is_empty());
  CHECK(Wrapped(nullptr).is_empty());
  CHECK(Wrapped(lt::CheckpointOptions{}).is_empty());
  const Wrapped layer(0.1), copy = layer;
  CHECK(copy.get() == layer.get());
  CHECK_THROWS_WITH(layer->clone(), Catch::Contains("cannot be cloned"));
  CHECK_THROWS_AS(layer->clone(), lt::UsageError);
}
