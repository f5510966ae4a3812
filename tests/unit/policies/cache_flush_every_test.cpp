// SPDX-License-Identifier: MIT
// CacheFlushEvery: when it flushes, and what it reports of an allocator that this test registers.
// Tests memory: empty_cache
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <c10/core/CachingDeviceAllocator.h>

namespace lt = looptorch;

namespace {

/// A device's caching allocator that holds `reserved` bytes, of which `used` are in use.
class FakeAllocator : public lt::detail::DeviceAllocator {
 public:
  std::int64_t reserved = 0, used = 0;
  int flushes = 0;
  bool ready = true;

  bool initialized() override { return ready; }
  void emptyCache(lt::detail::MempoolId_t) override {
    reserved = used;
    ++flushes;
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    REQUIRE(device == 0);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.reserved_bytes[0].current = reserved;
    return stats;
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  c10::DataPtr allocate(std::size_t) override { return {nullptr, kDevice}; }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}

  inline static const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};
};

/// The allocator of a device that does not exist, in its state after start.
FakeAllocator& fake() {
  static FakeAllocator allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  allocator.reserved = allocator.used = allocator.flushes = 0;
  allocator.ready = true;
  return allocator;
}

/// A model whose first parameter says that it is on that device; only the other one is ever used.
struct GuestImpl : torch::nn::Module {
  GuestImpl() {
    const at::Tensor there = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), 0, fake().allocate(0), nullptr, false),
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<float>());
    register_parameter("there", there, /*requires_grad=*/false);
    here = register_parameter("here", torch::ones({2}));
  }
  at::Tensor here;
};
TORCH_MODULE(Guest);

at::Tensor guest_loss(Guest& guest, const int&) { return guest->here.sum(); }

}  // namespace

TEST_CASE("flushes come between windows, after every K-th step, and change no bit") {
  const auto data = toy::batches(10);
  auto with = toy::net(), without = toy::net();
  torch::optim::SGD a(with->parameters(), 0.1), b(without->parameters(), 0.1);
  lt::Trainer one(with, a, toy::objective, lt::Accumulate<2>{}, lt::CacheFlushEvery<2>{});
  lt::Trainer two(without, b, toy::objective, lt::Accumulate<2>{});
  one.fit(data, {.epochs = 3}), two.fit(data, {.epochs = 3});
  CHECK(one.policy<lt::CacheFlushEvery<2>>().flushes == 7);  // 15 steps
  CHECK(one.policy<lt::CacheFlushEvery<2>>().freed_bytes == 0);
  CHECK(toy::distance(with, without) == 0.0);
}

TEST_CASE("K may be known when the program runs; one that cannot be is refused") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::CacheFlushEvery<>{5});
  trainer.fit(toy::batches(14));
  CHECK(trainer.policy<lt::CacheFlushEvery<>>().flushes == 2);
  for (const std::int64_t steps : {0, -3}) {
    lt::Trainer refused(net, sgd, toy::objective, lt::CacheFlushEvery<>{steps});
    CHECK_THROWS_AS(refused.fit(toy::batches(1)), lt::UsageError);
    CHECK_THROWS_WITH(refused.fit(toy::batches(1)), Catch::Contains("got " + std::to_string(steps)));
  }
}

TEST_CASE("K may count micro-batches: a flush waits for the end of its window, and none is lost") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto flushes = [&](std::int64_t micro_batches, std::int64_t accumulate, std::size_t batches) {
    lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<>{accumulate},
                        lt::CacheFlushEvery<>{.batches = micro_batches});
    std::vector<std::int64_t> steps;
    for (const auto& batch : toy::batches(batches)) {
      const auto before = trainer.policy<lt::CacheFlushEvery<>>().flushes;
      trainer.step(batch);
      if (trainer.policy<lt::CacheFlushEvery<>>().flushes > before) steps.push_back(trainer.progress().step);
    }
    return steps;
  };
  CHECK(flushes(4, 1, 13) == std::vector<std::int64_t>{4, 8, 12});
  CHECK(flushes(10, 4, 40) == std::vector<std::int64_t>{3, 5, 8, 10});  // after 12, 20, 32, 40 micro-batches
  CHECK(flushes(2, 4, 12) == std::vector<std::int64_t>{1, 2, 3});
  for (const auto& [policy, sentence] :
       {std::pair(lt::CacheFlushEvery<>{.batches = -1}, "at least 1 micro-batch between flushes, got -1"),
        std::pair(lt::CacheFlushEvery<>{.steps = 2, .batches = 3},
                  "was given 2 steps and 3 micro-batches between flushes: choose one")}) {
    lt::Trainer refused(net, sgd, toy::objective, policy);
    CHECK_THROWS_WITH(refused.fit(toy::batches(1)), Catch::Contains(sentence));
  }
}

TEST_CASE("epochs end with a flush if asked") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto flushes = [&](auto policy) {
    lt::Trainer trainer(net, sgd, toy::objective, policy);
    trainer.fit(toy::batches(5), {.epochs = 3});
    return trainer.template policy<decltype(policy)>().flushes;
  };
  CHECK(flushes(lt::CacheFlushEvery<4>{}) == 3);  // after steps 4, 8, 12
  CHECK(flushes(lt::CacheFlushEvery<4>{.at_epoch_end = true}) == 6);
  CHECK(flushes(lt::CacheFlushEvery<>{.steps = 100}) == 0);
  CHECK(flushes(lt::CacheFlushEvery<>{.steps = 100, .at_epoch_end = true}) == 3);
}

TEST_CASE("bytes given back are those that the allocator no longer holds") {
  FakeAllocator& allocator = fake();
  CHECK(lt::empty_cache(FakeAllocator::kDevice) == 0);
  allocator.reserved = 1000, allocator.used = 300;
  CHECK(lt::empty_cache(FakeAllocator::kDevice) == 700);
  CHECK(lt::empty_cache(FakeAllocator::kDevice) == 0);
  CHECK(allocator.flushes == 3);
  allocator.ready = false, allocator.reserved = 1000;
  CHECK(lt::empty_cache(FakeAllocator::kDevice) == 0);  // nothing has run there: nothing to ask
  CHECK(allocator.flushes == 3);
  CHECK(lt::empty_cache(at::kCPU) == 0);
  CHECK(lt::empty_cache(at::kMeta) == 0);
}

TEST_CASE("a run reports the bytes of its flushes, in all and of the last one") {
  FakeAllocator& allocator = fake();
  Guest guest;
  torch::optim::SGD sgd({guest->here}, 0.1);
  const lt::On grow{lt::kClip, [&](lt::UpdateContext& update) {
                      allocator.reserved += 100 * (update.run.progress().step + 1);
                    }};
  lt::Trainer trainer(guest, sgd, guest_loss, grow, lt::CacheFlushEvery<2>{.at_epoch_end = true});
  const auto& report = trainer.policy<lt::CacheFlushEvery<2>>();
  allocator.reserved = 50, allocator.used = 50;
  trainer.fit(std::vector{0, 0, 0, 0, 0});  // grows by 100, 200 | 300, 400 | 500
  CHECK(report.flushes == 3);
  CHECK(allocator.flushes == 3);
  CHECK(report.freed_bytes == 1500);
  CHECK(report.last_freed_bytes == 500);
  CHECK(allocator.reserved == 50);
}
