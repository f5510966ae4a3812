// SPDX-License-Identifier: MIT
// A device that is behind the host: what a correct program computes in every order that its events allow, and
// that each kind of mistake gives wrong numbers in some of them.
#include "support/precompiled.hpp"

#include "support/accelerator/accelerator.hpp"
#include "support/device/schedules.hpp"

#include <c10/core/AutogradState.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace sim = looptorch_test::accelerator;

namespace {

const at::Device kDevice = sim::device(0);
const at::TensorOptions kHere = at::TensorOptions().device(kDevice).dtype(at::kFloat);

enum class Mistake { none, refills_early, frees_early, misses_wait, reads_early };

at::Tensor batch(int step) { return at::arange(8, at::kFloat).add(step).sin().reshape({2, 4}); }

/// Returns the same stream of the pool each time, since what a seed does depends on it.
c10::Stream copy_stream() {
  const c10::impl::VirtualGuardImpl guard(sim::kDeviceType);
  c10::Stream stream = guard.getStreamFromGlobalPool(kDevice);
  while (stream.id() != 1) stream = guard.getStreamFromGlobalPool(kDevice);
  return stream;
}

/// Runs backward on this thread: a seed then gives the same schedule each time, in less time.
struct OneThread {
  OneThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~OneThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(true); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

/// Trains on batches from two pinned slots, through a copy stream, and reads the losses at the end.
class HandWritten {
 public:
  explicit HandWritten(Mistake mistake) : mistake_(mistake) {
    for (at::Tensor& slot : slots_)
      slot = at::empty({2, 4}, at::TensorOptions(at::kFloat).pinned_memory(true));
  }

  std::vector<at::Tensor> train() {
    const OneThread backward_here;
    constexpr int kSteps = 6;
    at::Tensor losses = at::empty({kSteps}, at::TensorOptions(at::kFloat).pinned_memory(true));
    for (int step = 0; step < kSteps; ++step) losses[step].copy_(update(copied(step)), /*non_blocking=*/true);
    if (mistake_ != Mistake::reads_early) sim::synchronize(kDevice);
    std::vector<at::Tensor> results{losses.clone()};
    for (const at::Tensor& weight : weights_) results.push_back(weight.detach().cpu());
    return results;
  }

 private:
  bool makes(Mistake mistake) const { return mistake_ == mistake; }

  at::Tensor copied(int step) {
    const std::size_t slot = static_cast<std::size_t>(step) % slots_.size();
    if (!makes(Mistake::refills_early)) events_[slot].synchronize();
    slots_[slot].copy_(batch(step));
    at::Tensor there;
    {
      const c10::StreamGuard on(copies_);
      there = slots_[slot].to(kDevice, /*non_blocking=*/true);
      events_[slot].record(copies_);
    }
    if (!makes(Mistake::misses_wait)) events_[slot].block(compute_);
    if (!makes(Mistake::frees_early)) there.record_stream(compute_);
    return there;
  }

  at::Tensor update(const at::Tensor& features) {
    const at::Tensor loss = features.matmul(weights_[0]).tanh().matmul(weights_[1]).pow(2).mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : weights_) {
      weight.sub_(weight.grad(), 0.1);
      weight.mutable_grad().reset();
    }
    return loss.detach();
  }

  static at::Tensor weight(std::vector<std::int64_t> sizes) {
    const std::int64_t count = sizes[0] * sizes[1];
    return at::arange(count, at::kFloat).cos().reshape(sizes).to(kDevice).requires_grad_();
  }

  Mistake mistake_;
  const c10::impl::VirtualGuardImpl guard_{sim::kDeviceType};
  c10::Stream compute_ = guard_.getStream(kDevice), copies_ = copy_stream();
  std::array<at::Tensor, 2> slots_;
  std::vector<c10::Event> events_ = [] {
    std::vector<c10::Event> events;
    for (int i = 0; i < 2; ++i) events.emplace_back(sim::kDeviceType);
    return events;
  }();
  std::vector<at::Tensor> weights_{weight({4, 8}), weight({8, 1})};
};

std::vector<at::Tensor> train(Mistake mistake) { return HandWritten(mistake).train(); }

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

TEST_CASE("sim: a correct program has the same results in every schedule") {
  const std::vector<at::Tensor> expected = train(Mistake::none);
  CHECK(at::isfinite(expected[0]).all().item<bool>());
  const int schedules = device_tests::schedules(1000);
  int wrong = 0;
  for (int seed = 0; seed < schedules; ++seed) {
    const sim::With with({.behind_host = true, .seed = static_cast<std::uint64_t>(seed)});
    wrong += !same(train(Mistake::none), expected);
  }
  CHECK(wrong == 0);
  CHECK(sim::violations().empty());
}

TEST_CASE("sim: a mistake gives wrong numbers in some schedules, and is a violation in all") {
  const std::vector<at::Tensor> expected = train(Mistake::none);
  constexpr int kSchedules = 40;
  for (const Mistake mistake :
       {Mistake::refills_early, Mistake::frees_early, Mistake::misses_wait, Mistake::reads_early}) {
    int wrong = 0, reported = 0;
    for (int seed = 0; seed < kSchedules; ++seed) {
      const sim::With with({.behind_host = true, .seed = static_cast<std::uint64_t>(seed)});
      wrong += !same(train(mistake), expected);
      sim::finish_all();
      reported += !sim::take_violations().empty();
    }
    INFO("mistake " << static_cast<int>(mistake));
    CHECK(wrong >= kSchedules / 8);
    // The host may read a number beside those that are being copied, so that only whole pages can be guarded.
    CHECK(reported == (mistake == Mistake::reads_early ? 0 : kSchedules));
  }
}

TEST_CASE("sim: kernels wait for a wait, and run in the order of each stream") {
  const sim::With with({.behind_host = true, .seed = 0});
  at::Tensor a = at::zeros({4}, kHere);
  for (int i = 1; i <= 3000; ++i)
    a.mul_(2).sub_(at::scalar_tensor(i, at::kFloat)).remainder_(1000);  // deeper than a queue
  at::Tensor b = at::zeros({4});
  for (int i = 1; i <= 3000; ++i) b.mul_(2).sub_(i).remainder_(1000);
  CHECK(at::equal(a.cpu(), b));
}

TEST_CASE("sim: numbers on the host are read at the launch") {
  const sim::With with({.behind_host = true, .seed = 0});
  at::Tensor number = at::scalar_tensor(2.0);
  const at::Tensor a = at::ones({4}, kHere) * number;
  number.fill_(5);
  CHECK(a[0].item<float>() == 2);
}

TEST_CASE("sim: an event that is queried gets done, without a wait") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const sim::With with({.behind_host = true, .seed = seed});
    const sim::NoWaits none(sim::NoWaits::Events::refused);
    at::Tensor a = at::ones({4}, kHere), host = at::empty({4}, at::TensorOptions().pinned_memory(true));
    for (int i = 0; i < 20; ++i) a.add_(1);
    host.copy_(a, /*non_blocking=*/true);
    c10::Event event(sim::kDeviceType);
    event.record(c10::impl::VirtualGuardImpl(sim::kDeviceType).getStream(kDevice));
    int queries = 0;
    while (!event.query()) ++queries;
    CHECK(queries < 100);
    CHECK(host[3].item<float>() == 21);
  }
}

TEST_CASE("sim: a model on two devices has the same gradients in every schedule") {
  const auto gradients = [](at::Device second) {
    const at::Tensor x = at::arange(8, at::kFloat).cos().reshape({2, 4}).to(kDevice).requires_grad_();
    const at::Tensor w = at::arange(12, at::kFloat).sin().reshape({4, 3}).to(second).requires_grad_();
    for (int i = 0; i < 3; ++i) x.exp().to(second).matmul(w).tanh().to(kDevice).mul(x.sum()).sum().backward();
    return std::vector<at::Tensor>{x.grad().cpu(), w.grad().cpu()};
  };
  const std::vector<at::Tensor> expected = gradients(kDevice);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const sim::With with({.behind_host = true, .seed = seed, .peer_access = seed % 2 == 0});
    CHECK(same(gradients(sim::device(1)), expected));
  }
}

TEST_CASE(
    "sim: memory that another stream used comes back once that is over, before the device is called full") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const sim::With with({.behind_host = true, .seed = seed, .cap_bytes = std::size_t{24} << 20});
    const c10::impl::VirtualGuardImpl guard(sim::kDeviceType);
    const c10::Stream other = guard.getStreamFromGlobalPool(kDevice);
    for (int i = 0; i < 10; ++i) {
      const at::Tensor a = at::full({10 << 18}, i, kHere);  // 10 MiB
      c10::Event event(sim::kDeviceType);
      event.record(guard.getStream(kDevice));
      event.block(other);
      const c10::StreamGuard on(other);
      CHECK(a[i].item<float>() == i);
      (void)a.slice(0, 0, 8).add(1);
      a.record_stream(other);
    }
  }
}

TEST_CASE("sim: memory keeps its contents where a device falls behind or catches up") {
  const at::Tensor a = at::full({4}, 3, kHere);
  {
    const sim::With with({.behind_host = true, .seed = 1});
    CHECK(a[0].item<float>() == 3);
    a.add_(1);
  }
  CHECK(a[0].item<float>() == 4);
}

TEST_CASE("sim: a program begins as LOOPTORCH_DEVICE_SEED says") {
  const char* const seed = std::getenv("LOOPTORCH_DEVICE_SEED");
  CHECK(sim::options().behind_host == (seed != nullptr));
  CHECK(sim::options().seed == (seed ? std::stoull(seed) : 0));
  if (seed) return;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "LOOPTORCH_DEVICE_SEED=3 '" + self + "' 'sim: a program begins*' --warn NoTests";
  CHECK(std::system((command + " > /dev/null").c_str()) == 0);
}

}  // namespace
