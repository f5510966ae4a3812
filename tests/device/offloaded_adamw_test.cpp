// SPDX-License-Identifier: MIT
// OffloadedAdamW on a device: FusedAdamW's numbers, with moments that lie in pinned host memory, through
// copies on a stream of their own.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/offloaded_adamw.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/toy.hpp"

namespace offloaded_adamw_device_test {

namespace lt = looptorch;
using namespace looptorch::testing;

template <class Optimizer, class... Policies>
std::vector<at::Tensor> trained(Optimizer make(toy::Net&), bool bad_batch, Policies... policies) {
  auto net = toy::net();
  net->to(torch::kFloat);
  net->to(test_device());
  Optimizer optimizer = make(net);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{}, lt::ClipGradNorm{0.5},
                      policies...);
  auto data = toy::batches(9);
  for (auto& batch : data) batch.features = batch.features.to(torch::kFloat);
  if (bad_batch) data[3].features.fill_(NAN);
  if (bad_batch)
    CHECK_THROWS_AS(trainer.fit(data), lt::NonFiniteLoss);
  else
    trainer.fit(data);
  std::vector<at::Tensor> result;
  for (const auto& parameter : net->parameters()) result.push_back(parameter.detach().cpu().clone());
  if constexpr (requires { optimizer.moments()[0].first[0].is_pinned(); })
    if (std::is_same_v<Optimizer, lt::OffloadedAdamW>)
      for (const auto& moment : optimizer.moments()[0].first) {
        CHECK(moment.is_cpu());
        CHECK(moment.is_pinned());
        CHECK(lt::OffloadedAdamW::state_bytes(optimizer.param_groups()[0], net->first->weight) == 0);
      }
  return result;
}

TEST_CASE("OffloadedAdamW has FusedAdamW's numbers on a device, in parts, with a bad loss too") {
  if (!has_device()) return;
  for (const bool bad_batch : {false, true}) {
    const auto plain = trained<lt::FusedAdamW>(
        [](toy::Net& net) { return lt::FusedAdamW(net->parameters(), {.lr = 1e-2}); }, bad_batch);
    for (const std::int64_t part : {5, 1 << 20}) {
      static std::int64_t elements;
      elements = part;
      const auto ours = trained<lt::OffloadedAdamW>(
          [](toy::Net& net) { return lt::OffloadedAdamW(net->parameters(), {.lr = 1e-2, .part = elements}); },
          bad_batch);
      for (std::size_t i = 0; i < plain.size(); ++i) CHECK(torch::allclose(ours[i], plain[i], 1e-5, 1e-6));
    }
  }
}

}  // namespace offloaded_adamw_device_test
