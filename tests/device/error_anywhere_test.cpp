// SPDX-License-Identifier: MIT
// Simulated device only: an error at every allocation, launch and kernel of a run in turn, through loader,
// forward, recomputation, backward, update, evaluation and snapshot. Each is a typed error or a run that went
// on without it; nothing is left behind, and the next run is right.
#include "support/precompiled.hpp"

#include <looptorch/base/error.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/weights/weight_averages.hpp>
#include <looptorch/trainer.hpp>

#include "device/support/training.hpp"
#include "support/device.hpp"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace looptorch::testing;
using training::Settings, training::Source;
namespace sim = looptorch_test::accelerator;
using Mode = looptorch::CheckpointMode;

namespace {

/// One epoch of three windows, whose first does not overflow.
Settings everything() {
  Settings settings = training::many_policies(Mode::offload);
  settings.epochs = 1, settings.steps = 3, settings.accumulate = 2;
  settings.loss_scale = 1 << 10;
  settings.snapshots = true;
  return settings;
}

std::ptrdiff_t threads() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

/// Waits up to a second until `value()` is the wanted one: the engine's thread drops its graph a little after
/// the exception has reached the caller.
template <class Value>
bool becomes(std::int64_t wanted, Value&& value) {
  for (int i = 0; i < 1000; ++i) {
    if (value() == wanted) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// How one kind of failure ended, over all its places in a run.
struct Tally {
  int runs = 0, failed = 0, went_on = 0;
};

/// A kind of failure: the option that asks for it, and the count of the operations that it hits.
struct Failure {
  std::int64_t sim::Options::*at;
  std::int64_t sim::Counts::*count;
};

/// Runs with the first, second, ... operation of a kind failing, until a run has fewer. `step` leaves some
/// places out; a run without failure then follows every third, and all of them if none is left out.
Tally fail_everywhere(const Failure& failure, const sim::Options& options, int first, int step) {
  const Settings settings = everything();
  const auto right = training::train(settings, test_device());
  REQUIRE(right.result.skipped < right.result.steps);
  sim::finish_all();
  const auto memory = sim::allocated_bytes(0), pinned = sim::pinned_bytes();
  const auto before = threads();
  Tally tally;
  for (std::int64_t n = first;; n += step) {
    CAPTURE(n);
    bool reached = true;
    {
      sim::Options failing = options;
      failing.*failure.at = n;
      const sim::With with(failing);
      const sim::CountWaits counted;
      std::string error;
      try {
        const auto outcome = training::train(settings, test_device());
        reached = counted.counts().*failure.count >= n;
        if (reached) ++tally.went_on;
        CHECK(training::difference(right, outcome) == "");
      } catch (const looptorch::Error& thrown) {
        error = thrown.what();
      } catch (const c10::OutOfMemoryError& thrown) {
        error = thrown.what_without_backtrace();
      } catch (const sim::AcceleratorError& thrown) {
        error = thrown.what_without_backtrace();
      }  // whatever else is thrown fails the test
      CAPTURE(error);
      if (!error.empty()) ++tally.failed;
      ++tally.runs;
    }
    sim::finish_all();
    CHECK(becomes(memory, [] { return sim::allocated_bytes(0); }));
    CHECK(becomes(pinned, [] { return sim::pinned_bytes(); }));
    CHECK(becomes(before, threads));
    CHECK(sim::take_violations() == std::vector<std::string>{});
    if (!reached) break;
    if (step == 1 || tally.runs % 3 == 0)
      CHECK(training::difference(right, training::train(settings, test_device())) == "");
  }
  return tally;
}

/// CI tries every third place; all of them are for `ctest -C long`.
int step() { return std::getenv("LOOPTORCH_EVERY_CALL") ? 1 : 3; }

}  // namespace

TEST_CASE("memory that runs out anywhere in a run is a typed error, and the next run is right") {
  const auto tally =
      fail_everywhere({&sim::Options::fail_allocation_at, &sim::Counts::allocations}, {}, 1, step());
  CHECK(tally.failed > 30);
}

TEST_CASE("a launch that is refused anywhere in a run is a typed error, and the next run is right") {
  const auto tally = fail_everywhere({&sim::Options::fail_launch_at, &sim::Counts::launches}, {}, 1, step());
  CHECK(tally.failed > 100);
}

TEST_CASE("a device that fails anywhere in a run is a typed error, and the next run is right") {
  const auto tally = fail_everywhere({&sim::Options::fail_kernel_at, &sim::Counts::kernels}, {}, 2, step());
  CHECK(tally.failed > 100);
}

TEST_CASE("a device that fails behind the host is a typed error, and the next run is right") {
  const auto tally = fail_everywhere({&sim::Options::fail_kernel_at, &sim::Counts::kernels},
                                     {.behind_host = true, .seed = 5}, 3, step());
  CHECK(tally.failed > 100);
}

TEST_CASE("pinned memory that cannot be had anywhere in a run is a typed error or pageable memory") {
  const auto tally = fail_everywhere({&sim::Options::fail_pinning_at, &sim::Counts::pinnings}, {}, 1, 1);
  CHECK(tally.runs > 3);
}

TEST_CASE("a device that fails while Autopsy runs a window again is a typed error") {
  const auto fails_in_time = [](std::int64_t n) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    net->to(test_device());
    looptorch::FusedAdamW adamw(net->parameters());
    std::vector<at::Tensor> data(3, torch::ones({5, 4}));
    data[1] = torch::full({5, 4}, NAN);
    for (at::Tensor& batch : data) batch = batch.to(test_device());
    looptorch::Trainer trainer(
        net, adamw, [](torch::nn::Sequential& net, const at::Tensor& x) { return net->forward(x).mean(); },
        looptorch::Autopsy{});
    const sim::With with({.fail_kernel_at = n});
    const sim::CountWaits counted;
    try {
      trainer.fit(data);
    } catch (const looptorch::Error&) {
    } catch (const sim::AcceleratorError&) {
    }  // whatever else is thrown fails the test
    return counted.counts().kernels >= n;
  };
  std::int64_t n = 1;
  while (fails_in_time(n)) ++n;
  CHECK(n > 50);
  sim::finish_all();
  CHECK(sim::take_violations() == std::vector<std::string>{});
}

TEST_CASE("memory that runs out as averages are put into the model leaves its weights as they were") {
  for (const auto& [type, offload] :
       {std::pair(at::kBFloat16, false), {at::kFloat, true}, {at::kBFloat16, true}}) {
    torch::nn::Linear net(1100, 2000);  // of several pieces
    net->to(test_device(), type);
    const at::NoGradGuard no_gradients;
    looptorch::detail::WeightAverages averages;
    averages.set_offload(offload);
    averages.admit(0, net->parameters(), *net);
    averages.begin(0);
    for (auto& parameter : net->parameters()) parameter.mul_(2);
    averages.move(0, 0.25);
    const auto on_host = [&] {
      std::vector<at::Tensor> copies;
      for (const auto& parameter : net->parameters()) copies.push_back(parameter.cpu());
      for (const auto& [name, average] : averages.named()) copies.push_back(average.cpu().clone());
      return copies;
    };
    const auto before = on_host();
    int failures = 0;
    for (bool failed = true; failed; failures += failed) {
      failed = false;
      try {
        const sim::With with({.fail_allocation_at = failures + 1});
        const looptorch::detail::AveragesInPlace in_place(&averages);
      } catch (const c10::OutOfMemoryError&) {
        failed = true;
      }
      CHECK_FALSE(averages.in_place());
      const auto after = on_host();
      for (std::size_t i = 0; i < before.size(); ++i) CHECK(torch::equal(before[i], after[i]));
    }
    CHECK(failures > 0);
  }
}
