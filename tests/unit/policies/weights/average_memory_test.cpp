// SPDX-License-Identifier: MIT
// Averages on the host have the bits of those beside their weights, whatever the size and layout.
// Runs on every device.
// Tests policies/weights: host_copies
#include "support/precompiled.hpp"

#include <looptorch/policies/weights/average_memory.hpp>

#include "support/place.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using looptorch::detail::AverageMemory;
using looptorch::testing::place;

namespace {

/// Weights of several pieces, layouts and types.
std::vector<at::Tensor> weights() {
  at::manual_seed(1);
  std::vector<at::Tensor> made{
      at::randn({1100, 2000}),  // more than two pieces
      at::randn({3, 5}).t(),       at::randn({2, 3, 4, 5}).to(at::MemoryFormat::ChannelsLast),
      at::randn({7}, at::kDouble), at::randn({9}).to(at::kBFloat16),
      at::randn({0, 4}),           at::randn({})};
  for (at::Tensor& weight : made) weight = weight.to(place());
  made.push_back(at::randn({6, 4}).to(place()).narrow(1, 0, 3));  // with gaps
  return made;
}

struct Averages {
  explicit Averages(bool offload, std::vector<at::Tensor> of) : weights(std::move(of)) {
    memory.set_offload(offload);
    std::int64_t bytes = 0;
    for (const at::Tensor& weight : weights) bytes += memory.bytes_for(weight);
    memory.reserve(bytes);
    for (const at::Tensor& weight : weights) averages.push_back(memory.average_of(weight, weight));
  }
  [[nodiscard]] std::vector<at::Tensor> on_host() const {
    memory.wait();
    std::vector<at::Tensor> copies;
    for (const at::Tensor& average : averages) copies.push_back(average.cpu());
    return copies;
  }
  AverageMemory memory;
  std::vector<at::Tensor> weights, averages;
};

void check_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(a[i].equal(b[i]));
  }
}

}  // namespace

TEST_CASE("averages on the host move as those beside their weights, bit for bit") {
  Averages beside(false, weights()), on_host(true, weights());
  for (std::size_t i = 0; i < on_host.averages.size(); ++i) {
    CAPTURE(i);
    CHECK(on_host.averages[i].is_cpu());
    CHECK(on_host.averages[i].scalar_type() == beside.averages[i].scalar_type());
    CHECK(on_host.averages[i].strides() == beside.averages[i].strides());
  }
  for (int step = 0; step < 3; ++step)
    for (Averages* const each : {&beside, &on_host}) {
      for (at::Tensor& weight : each->weights) weight.mul_(1.1);
      each->memory.lerp(each->averages, each->weights, 0.3);
    }
  check_equal(on_host.on_host(), beside.on_host());
}

TEST_CASE("weights and averages on the host are exchanged and put back, bit for bit") {
  Averages on_host(true, weights());
  for (at::Tensor& weight : on_host.weights) weight.requires_grad_(), weight.data().mul_(-2);
  const auto copies = [](const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> made;
    for (const at::Tensor& tensor : tensors) made.push_back(tensor.detach().cpu().clone());
    return made;
  };
  const auto weights_before = copies(on_host.weights), averages_before = on_host.on_host();
  std::vector<at::Tensor> kept;
  for (const at::Tensor& average : averages_before) kept.push_back(average.clone());
  std::vector<std::int64_t> versions;
  for (const at::Tensor& weight : on_host.weights) versions.push_back(weight._version());
  std::vector<AverageMemory::Replaced> replaced;
  for (std::size_t i = 0; i < on_host.weights.size(); ++i)
    replaced.push_back(on_host.memory.put_in(on_host.weights[i], on_host.averages[i]));
  const auto in_place = copies(on_host.weights);
  for (std::size_t i = 0; i < in_place.size(); ++i)
    CHECK(in_place[i].equal(kept[i].to(in_place[i].scalar_type())));
  for (std::size_t i = 0; i < in_place.size(); ++i)
    on_host.memory.take_out(on_host.weights[i], on_host.averages[i], replaced[i]);
  check_equal(copies(on_host.weights), weights_before);
  check_equal(on_host.on_host(), kept);
  for (std::size_t i = 0; i < versions.size(); ++i) CHECK(on_host.weights[i]._version() == versions[i]);
}

TEST_CASE("averages on the host have the values of weights that are conjugated when they are read") {
  const at::Tensor numbers = at::randn({700}, at::kComplexFloat), conjugated = numbers.conj().resolve_conj();
  Averages averages(true, {numbers.to(place()).conj()});
  CHECK(averages.on_host()[0].equal(conjugated));
  if (place().is_cpu()) return;  // beside each other
  averages.weights[0].mul_(2);
  const auto replaced = averages.memory.put_in(averages.weights[0], averages.averages[0]);
  CHECK(averages.on_host()[0].equal(conjugated * 2));
  CHECK(averages.weights[0].cpu().equal(conjugated));
  averages.memory.take_out(averages.weights[0], averages.averages[0], replaced);
  CHECK(averages.on_host()[0].equal(conjugated));
  CHECK(averages.weights[0].cpu().equal(conjugated * 2));
}

TEST_CASE("averages of 16-bit weights are fp32, and follow small steps") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const bool offload : {false, true}) {
      Averages averages(offload, {at::ones({3}, type).to(place())});
      CHECK(averages.averages[0].scalar_type() == at::kFloat);
      averages.weights[0].fill_(2);
      for (int step = 0; step < 5000; ++step)
        averages.memory.lerp(averages.averages, averages.weights, 0.001);
      const auto average = averages.on_host()[0].clone();
      CHECK(average[0].item<float>() == Approx(2 - std::pow(0.999, 5000)).epsilon(1e-4));

      // An evaluation sees the average rounded, and leaves its bits.
      const auto replaced = averages.memory.put_in(averages.weights[0], averages.averages[0]);
      CHECK(averages.weights[0].cpu().equal(average.to(type)));
      averages.memory.take_out(averages.weights[0], averages.averages[0], replaced);
      CHECK(averages.weights[0].eq(2).all().item<bool>());
      CHECK(averages.on_host()[0].equal(average));

      // Weights that were written meanwhile, as RestoreBest does, are the average from then on.
      const auto again = averages.memory.put_in(averages.weights[0], averages.averages[0]);
      averages.weights[0].fill_(7);
      averages.memory.take_out(averages.weights[0], averages.averages[0], again);
      CHECK(averages.weights[0].eq(2).all().item<bool>());
      CHECK(averages.on_host()[0].eq(7).all().item<bool>());
    }
}
