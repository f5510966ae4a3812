// SPDX-License-Identifier: MIT
// UpdateInBackward on a device: the numbers of updates at the window's end, and a loss that is NaN reaches no
// parameter although the host learns of it later.
#include "support/precompiled.hpp"

#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/toy.hpp"

namespace update_in_backward_device_test {

namespace lt = looptorch;
using namespace looptorch::testing;

template <class... Policies>
std::vector<at::Tensor> trained(bool bad_batch, const Policies&... policies) {
  auto net = toy::net();
  net->to(torch::kFloat);
  net->to(test_device());
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(net, optimizer, toy::objective, policies...);
  auto data = toy::batches(6);
  for (auto& batch : data) batch.features = batch.features.to(torch::kFloat);
  if (bad_batch) data[3].features.fill_(NAN);
  if (bad_batch)
    CHECK_THROWS_AS(trainer.fit(data), lt::NonFiniteLoss);
  else
    trainer.fit(data);
  std::vector<at::Tensor> result;
  for (const auto& parameter : net->parameters()) result.push_back(parameter.detach().cpu().clone());
  return result;
}

TEST_CASE("UpdateInBackward has the same numbers on a device, with a bad loss too") {
  if (!has_device()) return;
  for (const bool bad_batch : {false, true}) {
    const auto plain = trained(bad_batch), in_backward = trained(bad_batch, lt::UpdateInBackward{});
    for (std::size_t i = 0; i < plain.size(); ++i) {
      CHECK(plain[i].equal(in_backward[i]));
      CHECK(in_backward[i].isfinite().all().item<bool>());
    }
  }
}

TEST_CASE(
    "sums in bf16 and in moments have the same numbers on a device as on the host, with a bad loss too") {
  if (!has_device()) return;
  const lt::Accumulate<2> pairs;
  const lt::UpdateInBackward<lt::SumsInBf16> wide{.sums = {.min_size = 1 << 20}},
      narrow{.sums = {.min_size = 1}};
  const lt::UpdateInBackward<lt::SumsInMoments> in_moments;
  for (const bool bad_batch : {false, true}) {
    const auto plain = trained(bad_batch, pairs), sums = trained(bad_batch, pairs, wide);
    const auto rounded = trained(bad_batch, pairs, narrow), again = trained(bad_batch, pairs, narrow);
    const auto moments = trained(bad_batch, pairs, in_moments);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      CHECK(torch::allclose(plain[i], sums[i], 1e-5, 1e-6));
      CHECK(torch::allclose(plain[i], rounded[i], 0.05, 0.02));
      CHECK(rounded[i].equal(again[i]));
      CHECK(moments[i].isfinite().all().item<bool>());
    }
  }
}

}  // namespace update_in_backward_device_test
