// SPDX-License-Identifier: MIT
// Modules that are loaded where they are, from tensors that are there or on the CPU.
// Runs on every device.
// Tests state/weights: module_tensors
// Tests base/tensors: tensor_map
#include "support/precompiled.hpp"

#include <looptorch/state/weights/module_state.hpp>

#include "support/place.hpp"

using Catch::Contains;
using looptorch::load_state_dict;
using looptorch::ModuleStateError;
using looptorch::state_dict;
using looptorch::testing::place, looptorch::testing::placed;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", torch::nn::Linear(3, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    to(place());
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

}  // namespace

TEST_CASE("module state: parameters and buffers go from one module into another") {
  Net from, to;
  from->norm->running_mean.fill_(3);
  load_state_dict(to, state_dict(from));
  CHECK(state_dict(from).size() == 7);
  for (const auto& [name, tensor] : state_dict(from)) {
    CAPTURE(name);
    CHECK(torch::equal(tensor, state_dict(*to).at(name)));
    CHECK_FALSE(tensor.is_alias_of(state_dict(to).at(name)));
  }
  CHECK(to->fc->weight.requires_grad());
}

TEST_CASE("module state: tensors on the CPU are copied to where the module is") {
  Net from, to;
  auto tensors = state_dict(from);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().cpu();
  load_state_dict(to, tensors);
  CHECK(to->fc->weight.device() == place());
  CHECK(torch::equal(to->fc->weight, from->fc->weight));
}

TEST_CASE("module state: tensors are converted to the module's dtype") {
  Net from, to;
  auto halves = state_dict(from);
  for (auto& [name, tensor] : halves) tensor = tensor.is_floating_point() ? tensor.to(at::kHalf) : tensor;
  load_state_dict(*to, halves);
  CHECK(to->fc->weight.scalar_type() == at::kFloat);
  CHECK(torch::equal(to->fc->weight, from->fc->weight.to(at::kHalf).to(at::kFloat)));
}

TEST_CASE("module state: every name at fault stands in one error, and nothing is changed") {
  Net net;
  const auto before = net->fc->weight.clone();
  auto tensors = state_dict(net);
  for (auto& [name, tensor] : tensors) tensor = tensor.clone() + 1;
  tensors.erase("fc.bias");
  tensors.erase("norm.weight");
  tensors["norm.bias"] = torch::zeros({5});
  tensors["head.weight"] = torch::zeros({1});
  REQUIRE_THROWS_AS(load_state_dict(net, tensors), ModuleStateError);
  REQUIRE_THROWS_WITH(load_state_dict(net, tensors), Contains("2 missing: fc.bias, norm.weight") &&
                                                         Contains("1 surplus: head.weight") &&
                                                         Contains("1 unfit: norm.bias [5] instead of [2]"));
  CHECK(torch::equal(net->fc->weight, before));
}

TEST_CASE("module state: two parameters given for one that is tied must agree") {
  torch::nn::Module net;
  const auto tied = net.register_parameter("a", placed(torch::zeros({2})));
  net.register_parameter("b", tied);
  auto given = state_dict(net);
  given["b"] = given["b"].clone();
  CHECK_NOTHROW(load_state_dict(net, given));
  given["b"] = given["b"].cpu();
  CHECK_NOTHROW(load_state_dict(net, given));  // wherever the two were given
  given["b"] = given["b"] + 1;
  CHECK_THROWS_WITH(load_state_dict(net, given), Contains("1 unfit: b other values than a"));
}

TEST_CASE("module state: a tensor that holds nothing is refused") {
  Net net;
  const auto before = net->fc->bias.clone();
  auto tensors = state_dict(Net());
  tensors["norm.weight"] = at::Tensor();
  tensors["norm.bias"] = torch::empty({2}, at::kMeta);
  tensors["norm.running_mean"] = torch::zeros({2}).to_sparse();
  REQUIRE_THROWS_AS(load_state_dict(net, tensors), ModuleStateError);
  REQUIRE_THROWS_WITH(load_state_dict(net, tensors),
                      Contains("3 unfit: norm.bias from a tensor without memory (meta device), "
                               "norm.running_mean Sparse into Strided, norm.weight undefined"));
  CHECK(torch::equal(net->fc->bias, before));
}

TEST_CASE("module state: a tensor cannot be given what overlaps it in part") {
  const auto memory = placed(torch::arange(6, torch::kFloat));
  torch::nn::Module net;
  net.register_buffer("p", memory.slice(0, 0, 4));
  CHECK_THROWS_WITH(load_state_dict(net, {{"p", memory.slice(0, 2, 6)}}),
                    Contains("p from a part of itself"));
  CHECK_NOTHROW(load_state_dict(net, state_dict(net)));
  CHECK(torch::equal(memory.cpu(), torch::arange(6, torch::kFloat)));
}

TEST_CASE("module state: a long list of names is cut") {
  torch::nn::Sequential many;
  for (int i = 0; i < 10; ++i) many->push_back(torch::nn::Linear(1, 1));
  CHECK_THROWS_WITH(load_state_dict(many, {}),
                    Contains("20 missing: 0.bias, 0.weight") && Contains("and 12 more"));
}

TEST_CASE("module state: a buffer that is not there is skipped") {
  const torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(2).track_running_stats(false));
  CHECK(state_dict(norm).size() == 2);
  CHECK_NOTHROW(load_state_dict(norm, state_dict(norm)));
}
