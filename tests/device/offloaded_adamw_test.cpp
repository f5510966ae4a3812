// SPDX-License-Identifier: MIT
// OffloadedAdamW on a device: FusedAdamW's numbers, with moments that lie in pinned host memory, through
// copies on a stream of their own. Adafactor there, too.
#include "support/precompiled.hpp"

#include <looptorch/optim/adafactor.hpp>
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

TEST_CASE("Adafactor has the CPU's numbers on a device, and an overflow changes nothing there") {
  if (!has_device()) return;
  const auto steps = [](at::Device device, at::ScalarType type) {
    auto matrix =
        torch::arange(1, 61, torch::kDouble).view({6, 10}).sin().to(type).to(device).requires_grad_();
    auto bias = torch::ones({10}, type).to(device).requires_grad_();
    lt::Adafactor optimizer({matrix, bias}, {.beta1 = 0.9, .weight_decay = 0.1});
    for (int step = 0; step < 5; ++step) {
      for (auto* parameter : {&matrix, &bias})
        parameter->mutable_grad() = (torch::arange(parameter->numel(), torch::kDouble) + step)
                                        .cos()
                                        .view_as(*parameter)
                                        .to(type)
                                        .to(device);
      lt::GradientScale scale;
      scale.multiply(torch::full({}, 0.5, matrix.options().dtype(torch::kFloat)));
      optimizer.step(scale, torch::full({}, step == 2, matrix.options().dtype(torch::kFloat)));
    }
    CHECK(optimizer.moments()[0].steps[0].item<double>() == 4);
    return torch::cat({matrix.detach().flatten(), bias.detach()}).cpu().to(torch::kDouble);
  };
  CHECK(torch::allclose(steps(test_device(), torch::kFloat), steps(at::kCPU, torch::kFloat), 1e-5, 1e-6));
  CHECK(torch::allclose(steps(test_device(), torch::kBFloat16), steps(at::kCPU, torch::kFloat), 0.05, 0.02));
}

}  // namespace offloaded_adamw_device_test
