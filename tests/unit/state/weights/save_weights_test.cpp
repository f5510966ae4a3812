// SPDX-License-Identifier: MIT
// Against the file that tests/parity/safetensors_model.py recorded with Python's save_model.
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::load_safetensors;
using looptorch::load_weights;
using looptorch::SafetensorsError;
using looptorch::save_weights;
using looptorch::state_dict;
using looptorch::testing::TemporaryFolder;
using Metadata = looptorch::SafetensorsMetadata;

namespace {

const fs::path kReference =
    fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/safetensors_model.safetensors";

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const at::Tensor& weight) {
    register_parameter("weight", weight);
    register_parameter("bias", torch::zeros({5}));
  }
};
TORCH_MODULE(Head);

/// The module of the parity script, whose head has the weight of the embedding; or a weight of its own.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool is_tied = true) {
    embedding = register_module("embedding", torch::nn::Embedding(5, 3));
    register_module("head", Head(is_tied ? embedding->weight : torch::zeros({5, 3})));
    register_module("norm", torch::nn::BatchNorm1d(3));
  }
  torch::nn::Embedding embedding{nullptr};
};
TORCH_MODULE(Net);

/// With the values of the parity script.
Net reference_net() {
  Net net;
  const torch::NoGradGuard no_grad;
  int number = 0;
  for (const auto& [name, tensor] : state_dict(net)) {
    tensor.copy_(torch::arange(tensor.numel()).reshape(tensor.sizes()) + 100 * number++);
  }
  return net;
}

void check_equal(const Net& a, const Net& b) {
  const auto of_a = state_dict(a), of_b = state_dict(b);
  REQUIRE(of_a.size() == 8);
  for (const auto& [name, tensor] : of_a) {
    CAPTURE(name);
    CHECK(torch::equal(tensor, of_b.at(name)));
  }
}

}  // namespace

TEST_CASE("save weights: a tied module is what Python's save_model writes, and either file restores it") {
  const TemporaryFolder folder;
  save_weights(reference_net(), folder / "ours");
  const auto ours = load_safetensors(folder / "ours"), theirs = load_safetensors(kReference);
  CHECK(ours.metadata == theirs.metadata);
  CHECK(ours.metadata == Metadata{{"format", "pt"}, {"head.weight", "embedding.weight"}});
  REQUIRE(ours.tensors.size() == 7);
  for (const auto& [name, tensor] : theirs.tensors) {
    CAPTURE(name);
    REQUIRE(ours.tensors.contains(name));
    CHECK(torch::equal(ours.tensors.at(name), tensor));
    CHECK(ours.tensors.at(name).scalar_type() == tensor.scalar_type());
  }
  for (const auto& path : {folder / "ours", kReference}) {
    Net net;
    CHECK(load_weights(net, path).loaded.size() == 8);
    check_equal(net, reference_net());
  }
}

TEST_CASE("save weights: a module with its metadata, and without ties, is written whole") {
  const TemporaryFolder folder;
  const Net untied(false);
  save_weights(*untied, folder / "x", {{"epoch", "3"}, {"format", "mine"}});
  CHECK(load_safetensors(folder / "x").metadata == Metadata{{"epoch", "3"}, {"format", "mine"}});
  Net other(false);
  CHECK(load_weights(other, folder / "x").loaded.size() == 8);
  check_equal(other, untied);
}

TEST_CASE("save weights: in 16 bits, rounded once, and loaded into a module of 32") {
  const TemporaryFolder folder;
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    auto from = reference_net();
    from->register_buffer("steps", torch::tensor({int64_t{1} << 40}));
    save_weights(from, folder / "x", {}, dtype);
    const auto written = load_safetensors(folder / "x");
    CHECK(written.metadata.at("head.weight") == "embedding.weight");
    auto to = reference_net();
    to->register_buffer("steps", torch::zeros({1}, at::kLong));
    load_weights(to, folder / "x");
    const auto expected = looptorch::state_dict(from), loaded = looptorch::state_dict(to);
    for (const auto& [name, tensor] : written.tensors) {
      CAPTURE(name);
      const bool is_float = expected.at(name).is_floating_point();
      CHECK(tensor.scalar_type() == (is_float ? dtype : at::kLong));
      CHECK(torch::equal(tensor, expected.at(name).to(tensor.scalar_type())));
      CHECK(loaded.at(name).scalar_type() == expected.at(name).scalar_type());
      CHECK(torch::equal(loaded.at(name), tensor.to(expected.at(name).scalar_type())));
    }
  }
}

TEST_CASE("save weights: another type is made of one tensor at a time") {
  const TemporaryFolder folder;
  constexpr std::int64_t kBytes = 4 << 20;  // of each layer in fp32
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i)
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(1024, 1024).bias(false)));
  net->to(torch::kBFloat16);
  const looptorch::MemoryCounter counter(torch::kCPU);
  counter.reset_peak();
  const auto before = counter.read().allocated;
  save_weights(net, folder / "wide.safetensors", {}, torch::kFloat);
  CHECK(counter.read().peak - before < 2 * kBytes);
  counter.reset_peak();
  save_weights(net, folder / "narrow.safetensors", {}, torch::kHalf);
  CHECK(counter.read().peak - before < 5 * kBytes);  // what 2^20 numbers take while they are checked
  const auto wide = load_safetensors(folder / "wide.safetensors").tensors;
  for (const auto& [name, tensor] : state_dict(net)) CHECK(wide.at(name).equal(tensor.to(torch::kFloat)));
}

TEST_CASE("save weights: what 16 bits cannot hold is refused by name, and the old file stays") {
  const TemporaryFolder folder;
  torch::nn::Module module;
  module.register_buffer("small", torch::ones({3}));
  module.register_buffer("large", torch::tensor({1.0F, 7e4F}));
  save_weights(module, folder / "x");
  const auto old = looptorch::read_file(folder / "x");
  CHECK_THROWS_AS(save_weights(module, folder / "x", {}, at::kHalf), looptorch::UsageError);
  CHECK_THROWS_WITH(save_weights(module, folder / "x", {}, at::kHalf),
                    Contains("tensor \"large\" has a value that Half cannot hold"));
  CHECK_THROWS_WITH(save_weights(module, folder / "x", {}, at::kInt),
                    Contains("Int is not a floating-point"));
  CHECK(looptorch::read_file(folder / "x") == old);
  save_weights(module, folder / "x", {}, at::kBFloat16);  // rounds to 69,120, and infinity stays
  module.named_buffers()["large"][1] = std::numeric_limits<float>::infinity();
  save_weights(module, folder / "x", {}, at::kHalf);
  CHECK(load_safetensors(folder / "x").tensors.at("large").isinf().sum().item<int64_t>() == 1);

  const auto memory = torch::zeros({6});
  module.register_buffer("head", memory.slice(0, 0, 4));
  module.register_buffer("tail", memory.slice(0, 2, 6));
  CHECK_THROWS_WITH(save_weights(module, folder / "x", {}, at::kHalf), Contains("shares memory with"));
}

TEST_CASE("save weights: an alias counts as loaded only where the module ties the two") {
  const TemporaryFolder folder;
  save_weights(reference_net(), folder / "x");
  const Net untied(false);
  const auto before = untied->embedding->weight.detach().clone();
  CHECK_THROWS_AS(load_weights(untied, folder / "x"), looptorch::ModuleStateError);
  CHECK_THROWS_WITH(load_weights(untied, folder / "x"), Contains("1 missing: head.weight"));
  CHECK(torch::equal(untied->embedding->weight, before));
  CHECK(load_weights(untied, folder / "x", {.allow_missing = true}).loaded.size() == 7);
}

TEST_CASE("save weights: parameters that are views of the same memory are tied too") {
  const TemporaryFolder folder;
  const auto net = [] {
    torch::nn::Module module;
    const auto memory = torch::zeros({4});
    module.register_buffer("a", memory);
    module.register_buffer("b", memory.view({4}));
    return module;
  };
  const auto from = net();
  from.named_buffers()["a"].fill_(3);
  save_weights(from, folder / "x");
  CHECK(load_safetensors(folder / "x").metadata.at("b") == "a");
  const auto to = net();
  CHECK(load_weights(to, folder / "x").loaded.size() == 2);
  CHECK(torch::equal(to.named_buffers()["b"], torch::full({4}, 3.F)));
}

TEST_CASE("save weights: what cannot be written is refused by the tensor's name, and the old file stays") {
  const TemporaryFolder folder;
  save_weights(Net(), folder / "x");
  const auto old = looptorch::read_file(folder / "x");
  const auto refuses = [&](const at::Tensor& a, const at::Tensor& b, const std::string& message) {
    torch::nn::Module module;
    module.register_buffer("first", a);
    module.register_buffer("second", b);
    REQUIRE_THROWS_AS(save_weights(module, folder / "x"), SafetensorsError);
    REQUIRE_THROWS_WITH(save_weights(module, folder / "x"), Contains("x: tensor \"") && Contains(message));
    CHECK(looptorch::read_file(folder / "x") == old);
    CHECK(folder.entries() == 1);
  };
  const auto memory = torch::zeros({2, 6});
  refuses(memory, memory[1], "shares memory with");
  refuses(memory, memory.view({3, 4}), "shares memory with");
  refuses(memory, torch::zeros({1}, at::kComplexDouble), "\"second\": has a dtype that safetensors lacks");
  refuses(memory, torch::empty({1}, at::kMeta), "\"second\": has no values (meta device)");
  refuses(memory, torch::eye(3).to_sparse(), "\"second\": is sparse or nested");
}

TEST_CASE("convert floating point: integers, other kinds and what has the type already stay as they are") {
  looptorch::TensorMap tensors{{"count", torch::arange(3)},
                               {"half", torch::ones({2}, at::kHalf)},
                               {"inf", torch::tensor({INFINITY, -INFINITY, NAN})},
                               {"weight", torch::tensor({1.0, 0.1}, at::kDouble)}};
  const auto before = tensors;
  looptorch::convert_floating_point(tensors, at::kHalf);
  CHECK(tensors.at("count").is_same(before.at("count")));
  CHECK(tensors.at("half").is_same(before.at("half")));
  CHECK(tensors.at("inf").equal(before.at("inf").to(at::kHalf)) == false);  // NaN is not equal to itself
  CHECK(tensors.at("inf").isinf().sum().item<int>() == 2);
  CHECK(tensors.at("weight").equal(torch::tensor({1.0, 0.1}, at::kHalf)));
  CHECK_THROWS_WITH(looptorch::convert_floating_point(tensors, at::kLong),
                    Contains("Long is not a floating-point type"));
}

TEST_CASE(
    "convert floating point: a value that does not fit is refused by name, wherever it is, and nothing changes") {
  const auto refused = [](const at::Tensor& bad, at::ScalarType dtype) {
    looptorch::TensorMap tensors{{"a", torch::ones({2}, at::kDouble)}, {"z", bad}};
    const auto before = tensors;
    CHECK_THROWS_AS(looptorch::convert_floating_point(tensors, dtype), looptorch::UsageError);
    CHECK_THROWS_WITH(looptorch::convert_floating_point(tensors, dtype),
                      Contains("tensor \"z\" has a value"));
    for (const auto& [name, tensor] : before) CHECK(tensors.at(name).is_same(tensor));
  };
  refused(torch::tensor({1.0F, 7e4F}), at::kHalf);
  refused(torch::tensor({1.0, 1e300}, at::kDouble), at::kFloat);
  refused(torch::tensor({1.0, 1e300}, at::kDouble), at::kBFloat16);
  constexpr std::int64_t kMany = (1 << 20) + 5;  // more than are looked at at once
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1} << 20, kMany - 1}) {
    const at::Tensor many = torch::zeros({kMany});
    many[at] = -7e4;
    refused(many, at::kHalf);
  }
  looptorch::TensorMap most{{"w", torch::tensor({1.0, 3e38}, at::kDouble)}};
  CHECK_NOTHROW(looptorch::convert_floating_point(most, at::kFloat));
}

TEST_CASE(
    "save weights: with a type the file has floating-point values in it, and the module keeps its own") {
  const TemporaryFolder folder;
  const Net net = reference_net();
  save_weights(net, folder / "half.safetensors", {}, at::kHalf);
  const auto file = load_safetensors(folder / "half.safetensors");
  for (const auto& [name, tensor] : file.tensors) {
    CAPTURE(name);
    const auto own = state_dict(net).at(name);
    CHECK(tensor.scalar_type() == (own.is_floating_point() ? at::kHalf : at::kLong));
    CHECK(tensor.to(own.scalar_type()).equal(own));
  }
  CHECK(net->embedding->weight.scalar_type() == at::kFloat);
  const Net loaded;
  CHECK_NOTHROW(load_weights(loaded, folder / "half.safetensors"));
  check_equal(loaded, net);
}
