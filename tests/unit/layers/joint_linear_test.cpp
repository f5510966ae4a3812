// SPDX-License-Identifier: MIT
// joint_linear: the numbers of the layers one by one, by one product, and when it calls them one by one.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/adapters/lora.hpp>
#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/linear.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/checkpointed.hpp>

#include "support/operators_called.hpp"
#include "support/place.hpp"

#include <functional>
#include <vector>

namespace lt = looptorch;
using lt::testing::place, lt::testing::placed;

namespace {

constexpr std::int64_t kWidth = 6;

/// Layers of an attention; `biases` has a letter for each that has one.
struct Net {
  explicit Net(const std::string& biases = "qkv", at::ScalarType type = at::kDouble) {
    torch::manual_seed(1);
    const auto make = [&](char letter, std::int64_t outputs) {
      lt::Lora<lt::Linear> layer(
          torch::nn::LinearOptions(kWidth, outputs).bias(biases.find(letter) != std::string::npos));
      layer->to(place(), type);
      return layer;
    };
    q = make('q', 4), k = make('k', 8), v = make('v', 6);
    x = placed(at::randn({2, 3, kWidth}, type)).set_requires_grad(true);
  }

  /// Returns gradients of all that has one, and the outputs, after two uses of the same weights.
  std::vector<at::Tensor> results(bool joint, bool pair = false) {
    std::vector<at::Tensor> all, grads;
    at::Tensor loss;
    for (int use = 0; use < 2; ++use) {
      std::vector<at::Tensor> outputs;
      if (!joint) {
        outputs = {k(x), v(x)};
        if (!pair) outputs.insert(outputs.begin(), q(x));
      } else if (pair) {
        const auto made = lt::joint_linear(x, k, v);
        outputs = {made[0], made[1]};
      } else {
        const auto made = lt::joint_linear(x, q, k, v);
        outputs = {made[0], made[1], made[2]};
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        all.push_back(outputs[i].detach());
        const at::Tensor part = outputs[i].to(at::kDouble).square().sum() * static_cast<double>(i + 1);
        loss = loss.defined() ? loss + part : part;
      }
    }
    if (loss.requires_grad()) loss.backward();
    for (const auto& layer : {q, k, v})
      for (const at::Tensor& parameter : layer->parameters()) all.push_back(taken(parameter));
    all.push_back(taken(x));
    return all;
  }

  static at::Tensor taken(const at::Tensor& leaf) { return std::exchange(leaf.mutable_grad(), at::Tensor()); }

  lt::Lora<lt::Linear> q{nullptr}, k{nullptr}, v{nullptr};
  at::Tensor x;
};

void check_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                 double bound = 1e-12) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (!found[i].defined()) continue;
    CHECK(found[i].scalar_type() == expected[i].scalar_type());
    CHECK(at::allclose(found[i], expected[i], bound, bound));
  }
}

/// A block whose backward begins with the joint product.
struct EndsJointImpl : torch::nn::Module {
  explicit EndsJointImpl(std::int64_t width) : q(width, width), k(width, width) {
    register_module("q", q), register_module("k", k);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto [queries, keys] = lt::joint_linear(at::tanh(x), q, k);
    return queries + keys;
  }
  lt::Linear q, k;
};
TORCH_MODULE(EndsJoint);

/// Returns the gradients of a block of random weights.
template <class Block>
std::vector<at::Tensor> gradients_of(bool casts) {
  torch::manual_seed(1);
  Block block(kWidth);
  block->to(place());
  const at::Tensor x = placed(at::randn({2, 3, kWidth})).set_requires_grad(true);
  at::Tensor y;
  {
    std::optional<lt::AutocastScope> autocast;
    if (casts) autocast.emplace(place().type(), at::kBFloat16);
    y = block(x);
  }
  y.sum().backward();
  std::vector<at::Tensor> all{Net::taken(x)};
  for (const at::Tensor& parameter : block->parameters()) all.push_back(Net::taken(parameter));
  return all;
}

/// Returns how many products a call makes. The simulated device calls a CPU's kernels for its own.
std::size_t products(const std::function<void()>& call) {
  const OperatorsCalled called;
  call();
  const auto found = called.count("aten::addmm") + called.count("aten::mm");
  return found / (place().is_privateuseone() ? 2 : 1);
}

}  // namespace

TEST_CASE("joint_linear has the outputs and gradients of the layers, whichever have biases") {
  for (const char* biases : {"qkv", "qv", "", "k"}) {
    for (const bool pair : {false, true}) {
      CAPTURE(biases, pair);
      Net net(biases);
      check_close(net.results(true, pair), net.results(false, pair));
    }
  }
}

TEST_CASE("joint_heads has joint_linear's bits by heads, and gradients where some outputs are not used") {
  // Queries are as wide as keys, for one product, or not.
  for (const auto& [outputs, only_keys] : {std::pair(4, false), {8, false}, {8, true}}) {
    CAPTURE(outputs, only_keys);
    Net net("qv");
    net.q = lt::Lora<lt::Linear>(torch::nn::LinearOptions(kWidth, outputs));
    net.q->to(place(), at::kDouble);
    const auto split = [](const at::Tensor& made) {
      return made.unflatten(-1, {2, made.size(-1) / 2}).transpose(1, 2);
    };
    const auto results = [&, only = only_keys](bool by_heads) {
      auto made = by_heads ? lt::joint_heads(net.x, 2, net.q, net.k) : lt::joint_linear(net.x, net.q, net.k);
      if (!by_heads) made = {split(made[0]), split(made[1])};
      (only ? made[1] : made[0].sum() + made[1]).square().sum().backward();
      for (const at::Tensor& parameter : net.q->parameters()) CHECK(parameter.grad().defined() != only);
      std::vector<at::Tensor> all{made[0], made[1], Net::taken(net.x)};
      for (const auto& layer : {net.q, net.k})
        for (const at::Tensor& parameter : layer->parameters()) all.push_back(Net::taken(parameter));
      return all;
    };
    check_close(results(true), results(false));
  }
}

TEST_CASE("merge_heads applies a layer to heads, with its adapter") {
  Net net;
  const at::Tensor heads_BHTd = placed(at::randn({2, 3, 5, 2}, at::kDouble)).set_requires_grad(true);
  const auto merged = [&] { return lt::merge_heads(heads_BHTd, net.q); };
  CHECK(merged().grad_fn()->name() == "LinearBackward");
  CHECK(at::allclose(merged(), net.q(heads_BHTd.transpose(1, 2).flatten(2)), 1e-12, 1e-12));
  net.q->attach({.rank = 2});
  at::Tensor(net.q->b().detach()).fill_(1);
  CHECK(at::allclose(merged(), net.q(heads_BHTd.transpose(1, 2).flatten(2)), 1e-12, 1e-12));
}

TEST_CASE("joint_linear makes one product, and one for each gradient") {
  Net net;
  at::Tensor loss;
  CHECK(products([&] {
          const auto [q, k, v] = lt::joint_linear(net.x, net.q, net.k, net.v);
          loss = q.sum() + k.sum() + v.sum();
        }) == 1);
  const auto in_backward = products([&] { loss.backward(); });
  if (place().is_cpu()) CHECK(in_backward == 2);  // a device's runs on another thread
}

TEST_CASE("joint_linear computes in autocast's type, and gives gradients in the parameters'") {
  Net net("qv", at::kFloat);
  const auto under_autocast = [&](bool joint) {
    const lt::AutocastScope autocast(place().type(), at::kBFloat16);
    return net.results(joint);
  };
  const auto found = under_autocast(true);
  CHECK(found.front().scalar_type() == at::kBFloat16);
  check_close(found, under_autocast(false), 0.05);
}

TEST_CASE("joint_linear trains what is not frozen: all weights, or biases, or the input alone, or some") {
  const std::vector<std::function<void(Net&)>> freezers = {
      [](Net& net) { net.x.set_requires_grad(false); },
      [](Net& net) {
        for (auto& layer : {net.q, net.k, net.v}) layer->weight.set_requires_grad(false);
      },
      [](Net& net) {
        for (auto& layer : {net.q, net.k, net.v})
          for (at::Tensor& parameter : layer->parameters()) parameter.set_requires_grad(false);
      },
      [](Net& net) { net.k->bias.set_requires_grad(false); },
      [](Net& net) { net.v->weight.set_requires_grad(false); },
  };
  for (std::size_t i = 0; i < freezers.size(); ++i) {
    CAPTURE(i);
    Net net;
    freezers[i](net);
    check_close(net.results(true), net.results(false));
    const bool some = i + 1 == freezers.size();
    CHECK(products([&] { (void)lt::joint_linear(net.x, net.q, net.k, net.v); }) == (some ? 3 : 1));
  }
}

TEST_CASE("joint_linear calls layers one by one without gradients, with an adapter, and if large") {
  Net net;
  {
    const at::NoGradGuard no_gradients;
    CHECK(products([&] { (void)lt::joint_linear(net.x, net.q, net.k, net.v); }) == 3);
  }
  torch::nn::Linear large(64, 1024);
  large->to(place(), at::kDouble);
  const at::Tensor input = placed(at::randn({2, 64}, at::kDouble));
  CHECK(products([&] { (void)lt::joint_linear(input, large, large); }) == (place().is_cpu() ? 2 : 1));
  lt::detail::cpu_stands_for_accelerator = true;  // as in ShapesOnly(ShapesOf::accelerator)
  CHECK(products([&] { (void)lt::joint_linear(input, large, large); }) == 1);
  lt::detail::cpu_stands_for_accelerator = false;
  struct ModelImpl : torch::nn::Module {
    explicit ModelImpl(const Net& net) {
      register_module("q", net.q), register_module("k", net.k), register_module("v", net.v);
    }
  } model(net);
  lt::add_lora(model, {.rank = 2, .patterns = {"q"}});
  check_close(net.results(true), net.results(false));
}

TEST_CASE(
    "joint_linear joins larger layers on an accelerator than on a CPU, and none whose copies are dear") {
  const auto are_joined = [](std::int64_t width, at::DeviceType device) {
    const auto on_device = at::TensorOptions(device);
    const at::Tensor weight = at::empty({width, width}, on_device).requires_grad_();
    return lt::detail::are_joined(at::empty({2, width}, on_device), {weight, weight, weight}, {{}, {}, {}},
                                  false);
  };
  CHECK(are_joined(128, at::kCPU));
  CHECK_FALSE(are_joined(256, at::kCPU));
  CHECK(are_joined(256, at::kMeta));
  CHECK(are_joined(1280, at::kMeta));  // large-v3
  CHECK_FALSE(are_joined(4096, at::kMeta));
}

TEST_CASE("joint_linear can be differentiated twice") {
  const auto twice = [](bool joint, bool casts) {
    Net net("qkv", casts ? at::kFloat : at::kDouble);
    std::optional<lt::AutocastScope> autocast;
    if (casts) autocast.emplace(place().type(), at::kBFloat16);
    std::array<at::Tensor, 3> y{net.q(net.x), net.k(net.x), net.v(net.x)};
    if (joint) y = lt::joint_linear(net.x, net.q, net.k, net.v);
    autocast.reset();
    at::Tensor loss = at::zeros({}, placed(at::zeros({}, at::kDouble)).options());
    for (const at::Tensor& output : y) loss = loss + output.to(at::kDouble).pow(3).sum();
    const auto first = torch::autograd::grad({loss}, {net.x, net.k->weight}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true);
    (first[0].square().sum() + first[1].square().sum()).backward();
    std::vector<at::Tensor> all;
    for (const auto& layer : {net.q, net.k, net.v})
      for (const at::Tensor& parameter : layer->parameters()) all.push_back(Net::taken(parameter));
    all.push_back(Net::taken(net.x));
    return all;
  };
  check_close(twice(true, false), twice(false, false));
  const auto found = twice(true, true), expected = twice(false, true);
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i].defined() == expected[i].defined());
    if (found[i].defined())
      CHECK((found[i] - expected[i]).abs().max().item<double>() <=
            0.05 * expected[i].abs().max().item<double>() + 1e-6);
  }
}

TEST_CASE("joint_linear reruns its block, with gradients and autocast, if backward begins with it") {
  for (const bool casts : {false, true}) {
    CAPTURE(casts);
    check_close(gradients_of<lt::Checkpointed<EndsJoint>>(casts), gradients_of<EndsJoint>(casts), 0);
  }
}

TEST_CASE("joint_linear takes inputs on devices without autocast") {
  const auto options = at::TensorOptions(at::kMeta);
  lt::Linear q(kWidth, 4), k(kWidth, 8);
  for (auto layer : {q, k})
    for (at::Tensor* const parameter : {&layer->weight, &layer->bias})
      *parameter = at::empty(parameter->sizes(), options).set_requires_grad(true);
  const auto outputs = lt::joint_linear(at::empty({2, 3, kWidth}, options), q, k);
  CHECK(outputs[1].sizes() == at::IntArrayRef({2, 3, 8}));
}
