// SPDX-License-Identifier: MIT
// Averages on the host have the bits of those beside their weights, whatever the size and layout.
// Runs on every device.
// Tests policies/parts: host_copies
#include "support/precompiled.hpp"

#include <looptorch/policies/parts/average_memory.hpp>

#include "support/place.hpp"

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
    CHECK(on_host.averages[i].scalar_type() == on_host.weights[i].scalar_type());
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
  std::vector<std::uint32_t> versions;
  for (const at::Tensor& weight : on_host.weights) versions.push_back(weight._version());
  const auto exchange = [&] {
    for (std::size_t i = 0; i < on_host.weights.size(); ++i)
      on_host.memory.exchange(on_host.weights[i], on_host.averages[i]);
  };
  exchange();
  check_equal(copies(on_host.weights), kept);
  check_equal(on_host.on_host(), weights_before);
  exchange();
  check_equal(copies(on_host.weights), weights_before);
  check_equal(on_host.on_host(), kept);
  for (std::size_t i = 0; i < versions.size(); ++i) CHECK(on_host.weights[i]._version() == versions[i]);
}
