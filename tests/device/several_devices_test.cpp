// SPDX-License-Identifier: MIT
// Models, Trainers and threads beyond one device: a model on two of them, a Trainer on one that is not
// current, and two Trainers in two threads have the CPU's bits.
// Tests base/device: device_event, random_states
// Tests distributed: gradient_buckets
#include "support/precompiled.hpp"

#include <looptorch/base/device/device_event.hpp>
#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/base/device/older_libtorch.hpp>
#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/device/readback.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/distributed/gradient_buckets.hpp>
#include <looptorch/memory/checkpoint.hpp>

#include "device/support/training.hpp"
#include "support/device.hpp"

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;
using training::Optimizer, training::Settings, training::Source;
using Mode = looptorch::CheckpointMode;

namespace {

Settings everything(Mode mode) {
  Settings settings = training::many_policies(mode);
  settings.resume = true;
  return settings;
}

/// Returns how many blocks of memory a device's tensors have taken so far.
std::int64_t allocations(at::Device device) {
  auto* allocator = lt::detail::device_allocator(device.type());
  return allocator->getDeviceStats(device.index()).allocation[0].allocated;
}

void check_bits(const training::Outcome& there, const Settings& settings) {
  const auto on_cpu = training::train(settings, at::kCPU);
  CHECK(there.result.steps == on_cpu.result.steps);
  if (is_simulated()) CHECK(training::difference(on_cpu, there) == "");
}

}  // namespace

TEST_CASE("a model on two devices has the CPU's bits, under every policy that touches its tensors") {
  if (!has_device(1)) return;
  for (const Settings& settings :
       {Settings{}, Settings{.clip_norm = true}, Settings{.averages = true}, Settings{.fp16 = true},
        Settings{.bf16 = true}, Settings{.source = Source::pageable, .clip_value = true, .schedule = true},
        Settings{.optimizer = Optimizer::sgd, .accumulate = 2, .fp16 = true, .clip_norm = true},
        Settings{.optimizer = Optimizer::two_updates, .accumulate = 2, .fp16 = true, .clip_norm = true},
        Settings{.weights = training::Weights::sparse_on_device, .accumulate = 3},
        everything(Mode::recompute), everything(Mode::offload)}) {
    Settings split = settings;
    split.second = test_device(1);
    CAPTURE(settings.fp16, settings.clip_norm, settings.averages, settings.accumulate);
    check_bits(training::train(split, test_device(0)), settings);
  }
}

TEST_CASE("gradients of two devices, which backward makes in two threads, are sent once and in order") {
  if (!has_device(1)) return;
  const std::vector<at::Tensor> parameters{torch::ones({3}, test_device(0)).requires_grad_(),
                                           torch::ones({3}, test_device(1)).requires_grad_()};
  for (int round = 0; round < 3; ++round) {
    std::mutex writing;
    std::vector<at::Device> sent;
    lt::detail::GradientBuckets buckets(parameters, 1, [&](const at::Tensor& flat, const auto&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other thread gets here
      const std::lock_guard lock(writing);
      sent.push_back(flat.device());
    });
    buckets.arm(/*factor=*/1.0);
    at::Tensor late = parameters[0];
    for (int i = 0; i < 50; ++i) late = late * 1.5;
    (late.sum().cpu() + (parameters[1] * 2).sum().cpu()).backward();
    buckets.send_rest(/*factor=*/1.0);
    CHECK(sent == std::vector<at::Device>{test_device(1), test_device(0)});
  }
}

TEST_CASE("random numbers that rank 0 saved of its device are resumed on the one of this rank") {
  if (!has_device(1)) return;
  const at::Tensor here = torch::ones({1}, test_device(0)), there = torch::ones({1}, test_device(1));
  const auto numbers = [](std::int64_t device) {
    return lt::detail::state_of(lt::detail::default_generator(test_device(device)));
  };
  torch::manual_seed(5);
  lt::StateDict saved;
  saved.set(test_device(0).str(), numbers(0));
  torch::manual_seed(6);
  const at::Tensor other = numbers(0);
  auto states = lt::detail::RandomStates::loaded(saved);
  states.move_to(test_device(1));
  CHECK(states.drop_unfit().empty());
  states.apply();
  CHECK(numbers(1).equal(saved.get<at::Tensor>(test_device(0).str())));
  CHECK(numbers(0).equal(other));

  saved.set(test_device(1).str(), other);  // of two devices, as many as are in use here
  auto both = lt::detail::RandomStates::loaded(saved);
  both.move_to(test_device(1));
  both.apply();
  CHECK(numbers(0).equal(saved.get<at::Tensor>(test_device(0).str())));
  CHECK(numbers(1).equal(other));
}

TEST_CASE("a run on a device that is not current leaves the current one alone") {
  if (!has_device(1)) return;
  const at::Tensor current = torch::ones({1}, test_device(0));
  for (const Mode mode : {Mode::off, Mode::recompute, Mode::offload}) {
    const auto before = allocations(test_device(0));
    const looptorch_test::accelerator::CountWaits counted;
    check_bits(training::train(everything(mode), test_device(1)), everything(mode));
    CHECK(allocations(test_device(0)) == before);
    const auto passed = counted.counts().copies_passed;
    (void)training::train(everything(mode), test_device(0));
    if (is_simulated()) CHECK(counted.counts().copies_passed == 2 * passed);  // beside as many kernels
  }
}

TEST_CASE("an event on a device that is not current creates no context on the current one") {
  if (!has_device(1) || !is_simulated()) return;
  looptorch_test::accelerator::configure({});  // forgets contexts without tensors
  const c10::Stream stream = lt::detail::stream_of(test_device(1));
  lt::detail::DeviceEvent event(test_device(1).type());
  CHECK(event.query());
  CHECK(event.fits(test_device(0)));
  event.record(stream);
  CHECK_FALSE(event.fits(test_device(0)));
  CHECK(event.fits(test_device(1)));
  {
    lt::detail::DeviceEvent moved = std::move(event);
    moved.block(stream);
    moved = lt::detail::DeviceEvent(test_device(1).type());  // destroys the recorded one
    moved.record(stream);
    moved.synchronize();
    CHECK(moved.query());
  }
  const auto in_use = lt::detail::accelerators_in_use();
  CHECK(std::vector(in_use.begin(), in_use.end()) == std::vector{test_device(1)});
}

TEST_CASE("a run on a device that is not current creates no context on the current one") {
  if (!has_device(1) || !is_simulated()) return;
  // At the first backward LibTorch's engine sets the devices of its threads.
  (void)training::train({}, test_device(1));
  std::vector<Settings> all{{.averages = true, .offload_averages = true},
                            {.source = Source::loader, .captures = true},
                            {.source = Source::pageable, .logs = true, .metrics = true},
                            {.rescue = training::Rescue::autopsy, .infinite_slope = true}};
  for (const Mode mode : {Mode::off, Mode::recompute, Mode::offload}) all.push_back(everything(mode));
  for (const Settings& settings : all) {
    CAPTURE(settings.offload_averages, settings.captures, settings.logs, settings.resume);
    looptorch_test::accelerator::configure({});  // forgets contexts without tensors
    (void)training::train(settings, test_device(1));
    const auto in_use = lt::detail::accelerators_in_use();
    CHECK(std::vector(in_use.begin(), in_use.end()) == std::vector{test_device(1)});
  }
}

TEST_CASE("a model that moves from one device to the other has the CPU's bits") {
  if (!has_device(1)) return;
  for (const Settings& settings :
       {Settings{.metrics = true}, Settings{.source = Source::pageable, .fp16 = true, .averages = true},
        Settings{.weights = training::Weights::on_device, .accumulate = 3},
        Settings{.optimizer = Optimizer::two_updates, .accumulate = 2, .fp16 = true},
        // not LibTorch's SGD, whose momentum stays where it was
        Settings{.optimizer = Optimizer::fused_sgd, .source = Source::pinned, .fp16 = true},
        Settings{.schedule = true, .validate = true, .checkpointed = Mode::offload}}) {
    Settings on_cpu = settings, there = settings;
    on_cpu.moves_to = at::kCPU, there.moves_to = test_device(1);
    CAPTURE(settings.fp16, settings.averages, settings.accumulate);
    check_bits(training::train(there, test_device(0)), on_cpu);
  }
}

TEST_CASE(
    "dropout on a device that is not current draws from its generator, in recomputation and after a snapshot") {
  if (!has_device(1)) return;
  const at::Tensor current = torch::ones({1}, test_device(0));
  at::Tensor weight;
  for (const Mode mode : {Mode::off, Mode::recompute, Mode::offload})
    for (const bool resume : {false, true}) {
      const Settings settings{.draws = true, .snapshots = true, .resume = resume, .checkpointed = mode};
      const auto outcome = training::train(settings, test_device(1));
      const at::Tensor& now = outcome.contents.model.at("first.weight");
      if (weight.defined()) CHECK(torch::equal(now, weight));
      weight = now;
    }
}

TEST_CASE("a batch for a device that is not current is copied beside that device's computation") {
  if (!has_device(1) || !is_simulated()) return;
  at::Tensor batch = torch::ones({8}), computing = torch::ones({8}, test_device(1));
  computing.add_(1);
  const looptorch_test::accelerator::CountWaits counted;
  lt::move_to(batch, test_device(1));
  CHECK(counted.counts().copies_beside == 1);
  CHECK(batch.add(computing).eq(3).all().item<bool>());
  CHECK_FALSE(lt::is_on(batch, test_device(0)));
  lt::move_to(batch, test_device(0));
  CHECK(batch.device() == test_device(0));
}

TEST_CASE("a device without an index is the current one, whichever that is") {
  if (!has_device(1)) return;
  const c10::DeviceGuard guard(test_device(1));
  CHECK(lt::detail::with_index(at::Device(test_device().type())) == test_device(1));
  CHECK(lt::detail::with_index(test_device(0)) == test_device(0));
}

TEST_CASE("a number is read back from one device after the other") {
  if (!has_device(1)) return;
  lt::detail::Readback readback;
  for (const int index : {0, 1, 0}) {
    const at::Tensor number = torch::full({}, 3.5 + index, test_device(index));
    readback.start(number);
    CHECK(readback.take() == 3.5 + index);
    readback.start(at::_neg_view(number));
    CHECK(readback.take() == -3.5 - index);
  }
}

TEST_CASE("a block runs again on the device that was current") {
  if (!has_device(1)) return;
  std::vector<at::Device> current;
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor here = torch::ones({4}, at::Device(test_device().type()));
    current.push_back(here.device());
    return (x.exp() + here.to(x.device())).sin();
  };
  const at::Tensor x = torch::ones({4}, at::TensorOptions(test_device(0))).requires_grad_();
  at::Tensor y;
  {
    const c10::DeviceGuard guard(test_device(1));
    y = lt::checkpoint(block, x);
  }
  y.sum().backward();
  CHECK(current == std::vector{test_device(1), test_device(1)});
}

TEST_CASE("two Trainers on two devices in two threads do not disturb each other") {
  if (!has_device(1)) return;
  const Settings settings = everything(Mode::offload);
  training::Outcome first, second;
  std::thread other([&] { second = training::train(settings, test_device(1)); });
  first = training::train(settings, test_device(0));
  other.join();
  check_bits(first, settings);
  check_bits(second, settings);
}
