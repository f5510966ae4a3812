// SPDX-License-Identifier: MIT
// LibTorch's DataLoader under fit, step, evaluate and Validate: the bits of the same batches in a vector.
#include "support/precompiled.hpp"

#include <looptorch/data/loader/torch_batches.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lt = looptorch;

namespace {

using Example = torch::data::Example<>;

struct Points : torch::data::datasets::Dataset<Points> {
  Example get(std::size_t index) override {
    return {torch::full({4}, static_cast<double>(index) / 10, torch::kDouble),
            torch::tensor(static_cast<std::int64_t>(index % 3))};
  }
  std::optional<std::size_t> size() const override { return 10; }
};

auto make_loader(std::size_t workers) {
  return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Points().map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(4).workers(workers));
}

std::vector<Example> same_batches() {
  std::vector<Example> batches;
  auto loader = make_loader(0);
  for (const auto& batch : *loader) batches.push_back(batch);
  return batches;
}

lt::Loss loss_of(toy::Net& net, const Example& batch) {
  return {.value = torch::cross_entropy_loss(net(batch.data), batch.target), .weight = batch.target.size(0)};
}

torch::optim::SGD sgd(toy::Net& net) { return torch::optim::SGD(net->parameters(), 0.1); }

}  // namespace

TEST_CASE(
    "TorchBatches: fit, also after a pass that was left, has the bits of the same batches in a vector") {
  const auto batches = same_batches();
  REQUIRE(batches.size() == 3);
  for (const std::size_t workers : {0, 2}) {
    auto net = toy::net(), reference = toy::net();
    auto optimizer = sgd(net), other = sgd(reference);
    auto loader = make_loader(workers);
    lt::TorchBatches range(*loader);
    lt::Trainer trainer(net, optimizer, loss_of, lt::Accumulate<2>{}),
        expected(reference, other, loss_of, lt::Accumulate<2>{});
    CHECK(trainer.fit(range, {.max_steps = 1}).steps == 1);  // leaves the first pass
    CHECK(trainer.fit(range, {.epochs = 3}).steps == 6);
    CHECK(trainer.progress().samples == 30);
    expected.fit(batches, {.epochs = 3});
    CHECK(toy::distance(net, reference) == 0.0);
  }
}

TEST_CASE("TorchBatches: evaluate and Validate") {
  const auto batches = same_batches();
  auto net = toy::net();
  auto optimizer = sgd(net);
  auto loader = make_loader(1);
  lt::TorchBatches range(*loader);
  lt::Trainer trainer(net, optimizer, loss_of, lt::Validate{range, {.every = 1}});
  for (int pass = 0; pass < 2; ++pass) {
    const auto evaluation = trainer.evaluate(range);
    CHECK(evaluation.batches == 3);
    CHECK(evaluation.weight == 10.0);
    CHECK(evaluation.loss == trainer.evaluate(batches).loss);
  }
  trainer.fit(batches, {.max_steps = 1});
  CHECK(*trainer.metrics().find("validation.loss") == trainer.evaluate(batches).loss);
}

TEST_CASE("a batch of torch::data can be given to step, and its tensors are found") {
  auto net = toy::net(), reference = toy::net();
  auto optimizer = sgd(net), other = sgd(reference);
  lt::Trainer trainer(net, optimizer, loss_of), expected(reference, other, loss_of);
  auto loader = make_loader(0);
  for (auto& batch : *loader) trainer.step(batch);
  trainer.finish();
  expected.fit(same_batches());
  CHECK(toy::distance(net, reference) == 0.0);

  STATIC_REQUIRE(lt::BatchLike<std::vector<Example>>);
  STATIC_REQUIRE(lt::BatchLike<torch::data::TensorExample>);
  STATIC_REQUIRE_FALSE(lt::BatchLike<torch::data::Example<at::Tensor, std::shared_ptr<int>>>);
  const std::vector<Example> two(2, Example(torch::zeros({2, 1}), torch::zeros({2})));
  int found = 0;
  lt::for_each_tensor(two, [&](const at::Tensor&) { ++found; });
  CHECK(found == 4);
  torch::data::TensorExample alone(torch::zeros({5, 1}));
  CHECK(lt::batch_size(alone) == 5);
}
