// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/loop/predict.hpp>

#include "support/toy.hpp"

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace lt = looptorch;

namespace {

struct Numbers {
  [[nodiscard]] std::int64_t size() const { return 7; }
  [[nodiscard]] at::Tensor get(std::int64_t index) const {
    return torch::full({4}, static_cast<double>(index), torch::kDouble);
  }
};

at::Tensor scores(toy::Net& net, const at::Tensor& batch) { return net(batch); }

}  // namespace

TEST_CASE("predict: what the model says of each batch, in order, with no gradients and in eval mode") {
  auto net = toy::net();
  net->second->eval();
  const auto batches = toy::batches(5);
  const auto outputs = lt::predict(net, batches, [](toy::Net& net, const toy::Batch& batch) {
    CHECK_FALSE(net->is_training());
    CHECK_FALSE(net->first->is_training());
    return net(batch.features);
  });
  REQUIRE(outputs.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(torch::equal(outputs[i], net(batches[i].features)));
    CHECK_FALSE(outputs[i].requires_grad());
  }
  CHECK(net->is_training());
  CHECK(net->first->is_training());
  CHECK_FALSE(net->second->is_training());
  CHECK(at::GradMode::is_enabled());
}

TEST_CASE("predict: from a loader, again and again, and aggregates of tensors and numbers") {
  struct Best {
    at::Tensor classes;
    std::int64_t count;
  };
  auto net = toy::net();
  lt::PinnedPrefetchLoader loader(Numbers{}, {.batch_size = 3, .workers = 2});
  for (int pass = 0; pass < 2; ++pass) {
    const auto outputs = lt::predict(net, loader, [](toy::Net& net, const at::Tensor& batch) {
      return Best{net(batch).argmax(1), batch.size(0)};
    });
    REQUIRE(outputs.size() == 3);
    CHECK(outputs[2].count == 1);
    const auto all = torch::arange(7, torch::kDouble).unsqueeze(1).expand({7, 4});
    CHECK(torch::equal(torch::cat({outputs[0].classes, outputs[1].classes, outputs[2].classes}),
                       net(all).argmax(1)));
  }
  CHECK(lt::predict(net, std::vector<at::Tensor>{}, scores).empty());
}

TEST_CASE("predict: modes are restored after an exception, which names its batch where it is LibTorch's") {
  auto net = toy::net();
  const std::vector<at::Tensor> wrong{torch::ones({1, 4}, torch::kDouble),
                                      torch::ones({1, 5}, torch::kDouble)};
  CHECK_THROWS_WITH(lt::predict(net, wrong, scores), Catch::Contains("in batch 1 of a prediction"));
  CHECK(net->is_training());
  CHECK(net->first->is_training());
  CHECK(at::GradMode::is_enabled());
}

TEST_CASE(
    "predict: batches are moved to the model's device, and a model without parameters takes them as they are") {
  toy::Ghost ghost;  // on the meta device
  const auto sizes = lt::predict(ghost, std::vector<at::Tensor>{torch::ones({2, 4}, torch::kDouble)},
                                 [](toy::Ghost& model, const at::Tensor& batch) {
                                   CHECK(batch.is_meta());
                                   return model(batch).size(0);
                                 });
  CHECK(sizes == std::vector<std::int64_t>{2});
  torch::nn::Flatten none;
  const auto outputs =
      lt::predict(none, std::vector<at::Tensor>{torch::ones({2, 3, 4})},
                  [](torch::nn::Flatten& model, const at::Tensor& batch) { return model(batch); });
  CHECK(outputs[0].sizes() == at::IntArrayRef({2, 12}));
}

TEST_CASE("outputs that are the batch's own tensors stay what they were when the range refills it") {
  struct Refilled {
    struct Iterator {
      using value_type = toy::Batch;
      using difference_type = std::ptrdiff_t;
      Refilled* range;
      int at;
      const toy::Batch& operator*() const {
        range->batch.labels.fill_(at);
        return range->batch;
      }
      Iterator& operator++() { return ++at, *this; }
      void operator++(int) { ++at; }
      bool operator==(const Iterator& other) const { return at == other.at; }
    };
    toy::Batch batch{torch::zeros({2, 4}, torch::kDouble), torch::zeros({2}, torch::kLong)};
    Iterator begin() { return {this, 0}; }
    Iterator end() { return {this, 3}; }
  };
  toy::Net net = toy::net();
  Refilled batches;
  const auto labels =
      lt::predict(net, batches, [](toy::Net&, const toy::Batch& batch) { return batch.labels; });
  REQUIRE(labels.size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(labels[static_cast<std::size_t>(i)].eq(i).all().item<bool>());
}
