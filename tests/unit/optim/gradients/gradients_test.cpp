// SPDX-License-Identifier: MIT
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/optim/gradients/gradients.hpp>

#include "support/place.hpp"

namespace lt = looptorch;
using looptorch::testing::place, looptorch::testing::placed;

TEST_CASE("a pending factor multiplies numbers and tensors, once") {
  lt::GradientScale scale;
  CHECK(scale.is_one());
  scale.multiply(0.5);
  scale.multiply(placed(torch::tensor(4.0)));
  CHECK_FALSE(scale.is_one());
  CHECK(scale.apply(placed(torch::tensor(3.0))).item<double>() == 6.0);
  CHECK(scale.reciprocal(place()).item<float>() == 0.5f);
  std::vector<at::Tensor> gradients{placed(torch::ones({2})), placed(torch::full({}, 3.0))};
  scale.flush(gradients);
  CHECK(gradients[0].equal(placed(torch::full({2}, 2.0))));
  CHECK(gradients[1].item<double>() == 6.0);
  CHECK(scale.is_one());
  scale.flush(gradients);
  CHECK(gradients[1].item<double>() == 6.0);
}

TEST_CASE("gradients on several devices are multiplied by a factor that is on one, each list on its own") {
  const auto on_meta = torch::ones({2}, torch::TensorOptions(at::kMeta));
  std::vector<at::Tensor> gradients{placed(torch::ones({2})), on_meta, placed(torch::full({3}, 2.0)),
                                    on_meta};
  std::vector<std::pair<at::Device, std::size_t>> lists;
  lt::detail::for_each_alike(
      gradients, [&](at::TensorList on_one) { lists.emplace_back(on_one.front().device(), on_one.size()); });
  CHECK(lists == std::vector<std::pair<at::Device, std::size_t>>{{place(), 2}, {at::kMeta, 2}});
  lt::GradientScale scale;
  scale.multiply(placed(torch::full({}, 3.0)));
  scale.flush(gradients);
  CHECK(gradients[0].equal(placed(torch::full({2}, 3.0))));
  CHECK(gradients[2].equal(placed(torch::full({3}, 6.0))));
  lt::detail::for_each_alike({}, [](at::TensorList list) { CHECK(list.empty()); });
}

TEST_CASE("a number alone divides without a tensor on the way") {
  lt::GradientScale scale;
  scale.multiply(1.0 / 3);
  CHECK_FALSE(scale.tensor().defined());
  CHECK(scale.reciprocal(place()).scalar_type() == at::kFloat);
  CHECK(scale.reciprocal(place()).item<float>() == 3.0f);
}

TEST_CASE("a number times a tensor divides as their fp64 product does, rounded once") {
  for (int i = 1; i < 200; ++i) {
    const at::Tensor factor = placed(torch::full({}, 0.1 * i, at::kFloat));
    lt::GradientScale scale;
    scale.multiply(1.0 / 3);
    scale.multiply(factor);
    const at::Tensor expected = (factor.to(at::kDouble) * (1.0 / 3)).reciprocal().to(at::kFloat);
    CHECK(scale.reciprocal(place()).equal(expected));
    CHECK(scale.reciprocal(place()).scalar_type() == at::kFloat);
  }
  lt::GradientScale of_one_element;
  of_one_element.multiply(2.0);
  of_one_element.multiply(placed(torch::full({1}, 0.25)));
  CHECK(of_one_element.reciprocal(place()).item<float>() == 2.0f);
}

TEST_CASE("a number that a graph reads on the device gives the bits of one on the host") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const double number : {1.0, 1.0 / 3, 7.0 / 1234567})
      for (const bool clipped : {false, true}) {
        CAPTURE(type, number, clipped);
        const at::Tensor values = torch::randn({100}, type), norm = torch::rand({}, at::kFloat);
        lt::GradientScale host;
        host.multiply(number);
        auto read = lt::GradientScale::read_from(placed(torch::full({}, number, at::kDouble)));
        for (lt::GradientScale* scale : {&host, &read}) {
          scale->multiply(0.7);
          if (clipped) scale->multiply(placed(norm));
        }
        CHECK_FALSE(read.is_one());
        CHECK(read.apply(placed(norm)).equal(host.apply(placed(norm))));
        CHECK(read.apply(placed(norm)).scalar_type() == at::kFloat);
        CHECK(read.reciprocal(place()).equal(host.reciprocal(place())));
        std::vector<at::Tensor> by_host{placed(values.clone())}, by_read{placed(values.clone())};
        host.flush(by_host), read.flush(by_read);
        CHECK(by_read[0].equal(by_host[0]));
        CHECK(read.is_one());
      }
}
