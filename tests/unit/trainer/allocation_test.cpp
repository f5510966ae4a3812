// SPDX-License-Identifier: MIT
// A Trainer's step makes no heap allocation beyond those of the LibTorch calls that it consists of: counted
// at `operator new`, whoever calls it, against the same calls in a loop written by hand.
// Tests loop
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "bench/support/hand.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

thread_local std::int64_t allocations = 0;

void* counted(void* memory) {
  ++allocations;
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The forms for arrays and without exceptions end up in these, and so do the calls of LibTorch's libraries.
// Not inlined, since g++ would see a `free` of what `operator new` returned, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return counted(std::malloc(std::max<std::size_t>(size, 1)));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(align, (std::max<std::size_t>(size, 1) + align - 1) / align * align));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

using bench::Batch;
using bench::Hand;
using bench::Net;
using Counts = std::vector<std::int64_t>;  // by step

constexpr std::int64_t kSteps = 24;
constexpr std::size_t kFirstSteps = 4;  // buffers find their size, the optimizer makes its moments

const std::vector<Batch>& batches() {
  static const auto result = bench::make_batches(8);
  return result;
}

/// What the steps of a run that has got going allocate: the largest count, and the most frequent.
struct Steady {
  std::int64_t most;
  std::int64_t usual;
};

Steady steady(Counts counts) {
  counts.erase(counts.begin(), counts.begin() + kFirstSteps);
  std::sort(counts.begin(), counts.end());
  return {counts.back(), counts[counts.size() / 2]};
}

/// Batches for `fit`: notes what each step has allocated when it asks for the next one's first.
class CountedBatches {
 public:
  struct Iterator {
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    const Batch& operator*() const { return batches()[static_cast<std::size_t>(number) % batches().size()]; }
    Iterator& operator++() {
      if (++number % of->micro_batches_ == 0) of->note();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return number == kSteps * of->micro_batches_; }
    CountedBatches* of = nullptr;
    std::int64_t number = 0;
  };

  explicit CountedBatches(std::int64_t micro_batches) : micro_batches_(micro_batches) {
    counts_.reserve(kSteps);
  }
  Iterator begin() {
    before_ = allocations;
    return {this};
  }
  std::default_sentinel_t end() const { return {}; }
  std::size_t size() const { return static_cast<std::size_t>(kSteps * micro_batches_); }
  const Counts& counts() const { return counts_; }

 private:
  void note() {
    counts_.push_back(allocations - before_);
    before_ = allocations;
  }

  std::int64_t micro_batches_;
  std::int64_t before_ = 0;
  Counts counts_;
};

/// Allocations of a Trainer's steps under these policies.
template <class... Policies>
Steady trained(std::int64_t micro_batches, Policies... policies) {
  Net net = bench::make_net();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = bench::kRate});
  lt::Trainer trainer(net, optimizer, bench::objective, std::move(policies)...);
  CountedBatches counted(micro_batches);
  trainer.fit(counted);
  REQUIRE(counted.counts().size() == kSteps);
  return steady(counted.counts());
}

/// The loop by hand with the parts that a Trainer is made of: the gradient with which backward begins, which
/// is kept, the running mean of the loss and the optimizer.
struct Loop {
  Hand hand{batches(), kSteps};
  lt::FusedAdamW optimizer{hand.net->parameters(), {.lr = bench::kRate}};
  lt::RunningMean mean;
  at::Tensor root;

  void learn(const at::Tensor& loss) {
    if (!root.defined()) root = at::ones_like(loss.detach());
    loss.backward(root);
    mean.add(loss, 1.0);
  }
  void update(const lt::GradientScale& scale = {}) {
    optimizer.step(scale, /*found_inf=*/{});
    hand.zero_grad();
  }
};

/// Allocations of the steps of a loop written by hand.
template <class Step>
Steady by_hand(Step step) {
  Loop loop;
  Counts counts(kSteps);
  for (auto& count : counts) {
    const auto before = allocations;
    step(loop);
    count = allocations - before;
  }
  return steady(counts);
}

/// Forward, backward, the mean of the loss and the fused optimizer.
Steady plain_by_hand() {
  return by_hand([](Loop& loop) {
    loop.learn(loop.hand.loss());
    loop.update();
  });
}

void check_same(const char* name, Steady ours, Steady hand) {
  INFO(name);
  CHECK(ours.usual == hand.usual);
  CHECK(ours.most == hand.most);
}

void check_at_most(const char* name, Steady ours, Steady hand) {
  INFO(name);
  CHECK(ours.usual <= hand.usual);
  CHECK(ours.most <= hand.usual);
}

}  // namespace

TEST_CASE("LibTorch's allocations are counted", "[allocation]") {
  const auto before = allocations;
  const auto tensor = torch::empty({3});
  CHECK(allocations - before >= 2);  // a storage and a tensor

  const auto plain = plain_by_hand();
  CHECK(plain.usual > 50);
  CHECK(plain.most == plain.usual);
}

TEST_CASE("a step allocates what its parts allocate", "[allocation]") {
  check_same("no policy", trained(1), plain_by_hand());
}

TEST_CASE("the parts of a step allocate no more than their LibTorch calls", "[allocation]") {
  const auto total = torch::zeros({}, torch::kDouble);
  const auto learn = [&](Loop& loop) {
    const at::Tensor loss = loop.hand.loss();
    loss.backward();
    torch::NoGradGuard no_gradients;
    total.add_(loss);
  };
  const auto kernels = by_hand([&](Loop& loop) {
    learn(loop);
    loop.hand.collect();
    loop.hand.update();
    loop.hand.zero_grad();
  });
  const auto optimizer = by_hand([&](Loop& loop) {
    learn(loop);
    loop.update();
  });
  CHECK(optimizer.most <= kernels.usual);
  CHECK(plain_by_hand().most <= optimizer.usual);  // the running mean
}

TEST_CASE("policies that call nothing of LibTorch allocate nothing", "[allocation]") {
  const auto expected = plain_by_hand();
  const auto held_out = bench::make_batches(1);
  std::int64_t windows = 0;
  const auto count_window = [&](lt::WindowContext&) { ++windows; };

  check_same("Accumulate<1>", trained(1, lt::Accumulate<1>{}), expected);
  check_same("ScheduleLr", trained(1, lt::ScheduleLr{.warmup_steps = 2}), expected);
  check_same("Validate", trained(1, lt::Validate{held_out, {.every = 1000}}), expected);
  check_same("ShowProgress", trained(1, lt::ShowProgress{.out = bench::nowhere(), .line_seconds = 1000}),
             expected);
  check_same("CacheFlushEvery", trained(1, lt::CacheFlushEvery<1>{}), expected);
  check_same("On", trained(1, lt::On{lt::kObserve, count_window}), expected);
  check_same("When, off", trained(1, lt::When{false, lt::ClipGradNorm{1.0}}), expected);
  CHECK(windows == kSteps);
}

TEST_CASE("policies that call LibTorch allocate what those calls allocate", "[allocation]") {
  check_same("Accumulate<4>", trained(4, lt::Accumulate<4>{}), by_hand([](Loop& loop) {
               for (int i = 0; i < 4; ++i) loop.learn(loop.hand.loss());
               lt::GradientScale quarter;
               quarter.multiply(0.25);
               loop.update(quarter);
             }));
  check_same("Autocast<bf16>", trained(1, lt::Autocast<lt::bf16>{}), by_hand([](Loop& loop) {
               loop.learn(loop.hand.autocast_loss(at::kBFloat16));
               loop.update();
             }));
  // PyTorch's calls make a view of each norm; ClipGradNorm makes none.
  check_at_most("ClipGradNorm", trained(1, lt::ClipGradNorm{1.0}), by_hand([](Loop& loop) {
                  loop.learn(loop.hand.loss());
                  loop.hand.collect();
                  lt::GradientScale scale;
                  scale.multiply(loop.hand.clip_factor(1.0));
                  loop.update(scale);
                }));
}

TEST_CASE("one string or vector a step is noticed", "[allocation]") {
  const auto plain = trained(1).usual;
  const auto of_string = trained(1, lt::On{lt::kObserve, [](lt::WindowContext&) {
                                             const std::string text(64, 'x');
                                             asm volatile("" : : "r"(text.data()) : "memory");
                                           }});
  CHECK(of_string.usual == plain + 1);
  const auto of_vector = trained(1, lt::On{lt::kClip, [](lt::UpdateContext&) {
                                             const std::vector<at::Tensor> none(1);
                                             asm volatile("" : : "r"(none.data()) : "memory");
                                           }});
  CHECK(of_vector.usual == plain + 1);
}
