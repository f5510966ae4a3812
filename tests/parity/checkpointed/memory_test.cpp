// SPDX-License-Identifier: MIT
// Bytes: what a checkpointed model holds between forward and backward, at most, and afterwards.
#include <looptorch/memory/keep.hpp>

#include "parity/checkpointed/support/live_bytes.hpp"
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

namespace {

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kActivation = kRows * kWidth * 4;  // bytes

/// Bytes of activations alive after forward, and the most at any time until backward's end.
struct Bytes {
  std::int64_t after_forward;
  std::int64_t peak;
};

template <class Forward>
Bytes measure(int depth, const Forward& forward) {
  torch::manual_seed(0);
  std::vector<FeedForward> blocks(static_cast<std::size_t>(depth));
  const at::Tensor x = torch::randn({kRows, kWidth});
  const LiveBytes live;
  at::Tensor loss = forward(blocks, x).sum();
  const std::int64_t after_forward = live.now();
  loss.backward();
  loss = at::Tensor();
  const std::int64_t peak = live.peak();
  for (auto& block : blocks) block->zero_grad(/*set_to_none=*/true);
  CHECK(live.now() == 0);
  return {after_forward, peak};
}

at::Tensor plain(std::vector<FeedForward>& blocks, at::Tensor x) {
  for (const auto& block : blocks) x = block(x);
  return x;
}
at::Tensor recomputed(std::vector<FeedForward>& blocks, at::Tensor x) {
  for (const auto& block : blocks) x = lt::checkpoint(block, x);
  return x;
}

}  // namespace

TEST_CASE("between forward and backward each block holds one activation, its argument") {
  const Bytes of_plain = measure(12, plain), of_ours = measure(12, recomputed);
  CHECK(of_plain.after_forward > 12 * 7 * kActivation);
  CHECK(of_ours.after_forward < 12.5 * kActivation);
  CHECK(of_ours.peak < 0.3 * static_cast<double>(of_plain.peak));
}

TEST_CASE("blocks inside blocks hold the outer one's argument only") {
  const auto grouped = [](std::vector<FeedForward>& blocks, at::Tensor x) {
    for (std::size_t i = 0; i < blocks.size(); i += 4) {
      const std::vector<FeedForward> four(blocks.begin() + i, blocks.begin() + i + 4);
      const auto group = [four](at::Tensor x) {
        for (const auto& block : four) x = lt::checkpoint(block, x);
        return x;
      };
      x = lt::checkpoint(group, x);
    }
    return x;
  };
  const Bytes flat = measure(16, recomputed), nested = measure(16, grouped);
  CHECK(nested.after_forward < 4.5 * kActivation);
  CHECK(nested.peak < 0.75 * static_cast<double>(flat.peak));
}

TEST_CASE("keep holds its result and nothing else") {
  const auto kept = [](std::vector<FeedForward>& blocks, at::Tensor x) {
    for (const auto& block : blocks) {
      const auto call = [block](const at::Tensor& x) {
        return lt::keep([](const at::Tensor& x) { return x.exp(); }, block(x)).sin();
      };
      x = lt::checkpoint(call, x);
    }
    return x;
  };
  const Bytes all = measure(8, recomputed), some = measure(8, kept);
  CHECK(some.after_forward - all.after_forward < 8.5 * kActivation);
}

TEST_CASE("nothing is left of a graph that is dropped without backward, or after an exception") {
  const FeedForward block;
  const at::Tensor x = torch::randn({kRows, kWidth});
  const LiveBytes live;
  lt::checkpoint(block, x);
  CHECK(live.now() == 0);
  {
    const at::Tensor loss = lt::checkpoint(block, x).sum();
    torch::autograd::grad({loss}, {block->norm->weight}, {}, /*retain_graph=*/true);
    CHECK(live.now() < 1.1 * kActivation);
    struct Bad {};
    const at::Tensor bad = lt::checkpoint(
        [run = std::make_shared<int>(0), block](const at::Tensor& x) {
          const at::Tensor h = block(x).exp();
          if (++*run == 2) throw Bad{};
          return h.sin();
        },
        x);
    CHECK_THROWS(bad.sum().backward());
  }
  CHECK(live.now() == 0);
}

TEST_CASE("a module lives as long as its graph, and no longer") {
  std::weak_ptr<torch::nn::Module> alive;
  at::Tensor y;
  {
    const FeedForward block;
    alive = block.ptr();
    y = lt::checkpoint(block, input(cpu<float>()));
  }
  CHECK_FALSE(alive.expired());
  y.sum().backward();
  y = at::Tensor();
  CHECK(alive.expired());
}
