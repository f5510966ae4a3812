// SPDX-License-Identifier: MIT
// When kernels are compiled: as an optimizer is made and as a fit begins, on the devices of the parameters.
//
// Tests loop/step: update_step
#include "support/precompiled.hpp"

#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// Counts what it is asked for, and has no kernels.
struct NoKernels final : lt::detail::KernelRunner {
  NoKernels() { lt::detail::own_kernel_runner(c10::kCPU) = this; }
  ~NoKernels() { lt::detail::own_kernel_runner(c10::kCPU) = nullptr; }
  std::size_t prepare(const lt::detail::KernelSource& source, c10::Device) override {
    asked.push_back(source.name);
    return 0;
  }
  void launch(const lt::detail::KernelSource&, const char*, c10::Device, unsigned, const void*) override {
    FAIL("launched what was not prepared");
  }
  std::vector<std::string> asked;
};

toy::Net narrow_net() {
  toy::Net net = toy::net();
  net->to(torch::kFloat);
  return net;
}

lt::Loss narrow_objective(toy::Net& net, const toy::Batch& batch) {
  return toy::objective(net, {batch.features.to(torch::kFloat), batch.labels});
}

}  // namespace

TEST_CASE("an optimizer's kernels are compiled as it is made") {
  toy::Net net = narrow_net();
  NoKernels runner;
  const lt::AdamW8bit optimizer(net->parameters());
  CHECK(runner.asked == std::vector<std::string>(4, "AdamW8bit"));
  const lt::FusedAdamW other(net->parameters());
  CHECK(runner.asked.size() == 4);
}

TEST_CASE("kernels that were not compiled are as a fit begins, before its first step") {
  toy::Net net = narrow_net();
  lt::AdamW8bit optimizer(net->parameters());
  NoKernels runner;
  std::size_t before_first_batch = 0;
  const auto objective = [&](toy::Net& model, const toy::Batch& batch) {
    if (before_first_batch == 0) before_first_batch = runner.asked.size();
    return narrow_objective(model, batch);
  };
  lt::Trainer trainer(net, optimizer, objective);
  trainer.fit(toy::batches(2), {.epochs = 1});
  CHECK(before_first_batch == 4);
}

TEST_CASE("an optimizer chosen at run time compiles its kernels, too") {
  toy::Net net = narrow_net();
  std::unique_ptr<lt::AnyOptimizer> optimizer = std::make_unique<lt::AdamW8bit>(net->parameters());
  NoKernels runner;
  lt::Trainer trainer(net, *optimizer, narrow_objective);
  trainer.fit(toy::batches(1), {.epochs = 1});
  CHECK(runner.asked.size() == 4 + 1);  // the fit, and its step
}

TEST_CASE("parameters in fp64 are updated without a kernel") {
  toy::Net net = toy::net();
  NoKernels runner;
  const lt::AdamW8bit optimizer(net->parameters());
  CHECK(runner.asked.empty());
}
