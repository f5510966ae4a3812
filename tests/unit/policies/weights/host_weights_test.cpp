// SPDX-License-Identifier: MIT
// Copies of weights in host memory: their bits, formats and memory.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/policies/weights/host_weights.hpp>

#include "support/place.hpp"

using looptorch::detail::HostWeights;
using looptorch::testing::place;

TEST_CASE("copies have the weights' bits and formats, lie on the host, and stay as the weights change") {
  const std::map<std::string, at::Tensor> weights = {
      {"images", at::randn({2, 3, 4, 5}).to(at::MemoryFormat::ChannelsLast).to(place())},
      {"narrow", at::randn({7}).to(at::kBFloat16).to(place())},
      {"count", at::tensor(3, at::kLong).to(place())},
      {"none", at::zeros({0, 2}).to(place())},
      {"matrix", at::randn({5, 3}).t().to(place())}};
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, weight] : weights) before[name] = weight.cpu().clone();
  HostWeights kept;
  CHECK(kept.empty());
  kept.keep(weights);
  for (const auto& [name, weight] : weights) weight.zero_();
  CHECK_FALSE(kept.empty());
  for (const auto& [name, copy] : kept.by_name()) {
    CAPTURE(name);
    CHECK(copy.is_cpu());
    CHECK(copy.scalar_type() == before[name].scalar_type());
    CHECK(copy.strides() == weights.at(name).strides());
    CHECK(copy.equal(before[name]));
  }
}

TEST_CASE("copies have the values of weights that are conjugated or negated when they are read") {
  const at::Tensor numbers = at::randn({700}, at::kComplexFloat), there = numbers.to(place());
  HostWeights kept;
  kept.keep({{"conjugate", there.conj()}, {"negative", at::_neg_view(there)}});
  CHECK(kept.by_name().at("conjugate").equal(numbers.conj().resolve_conj()));
  CHECK(kept.by_name().at("negative").equal(-numbers));
}

TEST_CASE("later copies use the memory of earlier ones, unless the weights are others") {
  HostWeights kept;
  const at::Tensor weight = at::ones({4}).to(place());
  kept.keep({{"weight", weight}});
  const void* const memory = kept.by_name().at("weight").data_ptr();
  weight.fill_(2);
  kept.keep({{"weight", weight}});
  CHECK(kept.by_name().at("weight").data_ptr() == memory);
  CHECK(kept.by_name().at("weight").equal(at::full({4}, 2.0)));
  kept.keep({{"weight", at::ones({5}).to(place())}, {"other", weight}});
  CHECK(kept.by_name().size() == 2);
  CHECK(kept.by_name().at("weight").sizes() == at::IntArrayRef{5});
  kept.take({{"loaded", at::ones({1})}});
  CHECK(kept.by_name().size() == 1);
}
