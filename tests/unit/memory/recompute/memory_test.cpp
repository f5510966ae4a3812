// SPDX-License-Identifier: MIT
// Bytes: what a checkpointed model holds between forward and backward, at most, and afterwards; offload, off,
// and every K-th layer.
// Tests memory/recompute: offload
#include <looptorch/memory/keep.hpp>

#include "unit/memory/recompute/support/live_bytes.hpp"
#include "unit/memory/recompute/support/scenarios.hpp"

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

TEST_CASE("an argument that is changed in place by what the block made of it does not keep its graph alive") {
  const FeedForward block;
  const bool needs_gradient = GENERATE(false, true), within = GENERATE(false, true);
  const at::Tensor x = torch::randn({kRows, kWidth}).requires_grad_(needs_gradient);
  const auto f = [&](const at::Tensor& x) {
    at::Tensor h = x.exp();
    const at::Tensor y = lt::checkpoint(block, h);
    h.add_(y);
    return y * 2;
  };
  const LiveBytes live;
  if (within)
    (void)lt::checkpoint(f, x);
  else
    (void)f(x);
  CHECK(live.now() == 0);
}

namespace {

/// Passes on what it is given; its backward fails.
struct Fails : torch::autograd::Function<Fails> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 1; }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list) {
    throw std::runtime_error("in backward");
  }
};

}  // namespace

TEST_CASE("after a pass that fails nothing stays recorded") {
  const at::Tensor x = torch::randn({kRows, kWidth}).requires_grad_();
  const auto block = [](const at::Tensor& x) {
    const at::Tensor h = x * 2;
    return std::make_pair(h.exp().sin(), Fails::apply(h).cos());
  };
  const LiveBytes live;
  const auto [a, b] = lt::checkpoint(block, x);
  const std::int64_t before = live.now();
  for (int pass = 0; pass < 3; ++pass) {
    CHECK_THROWS_WITH(b.sum().backward({}, /*keep_graph=*/true),
                      "in backward");  // backward does not need `a`'s tensors
    CHECK(live.now() == before);
  }
  a.sum().backward({}, /*keep_graph=*/true);
  CHECK(same_bits(x.grad(), ((x * 2).exp().cos() * (x * 2).exp() * 2).detach()));
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

TEMPLATE_TEST_CASE("offloaded blocks give the plain run's bits", "", float, double) {
  const lt::CheckpointOptions offload{.mode = lt::CheckpointMode::offload};
  check_same_bits(cpu<TestType>(), scenarios::batch_norm, offload);
  check_same_bits(cpu<TestType>(), scenarios::in_place, offload);
  check_same_bits(cpu<TestType>(), scenarios::views, offload);
  check_same_bits(cpu<TestType>(), scenarios::nested, offload);
  check_same_bits(cpu<TestType>(), scenarios::shared_parameters, offload);
  check_same_bits(cpu<TestType>(), scenarios::frozen, offload);
  check_same_bits(cpu<TestType>(), scenarios::autocast<false>(at::kBFloat16), offload);
}

TEST_CASE("an offloaded block runs once") {
  const FeedForward block;
  lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, input(cpu<float>())).sum().backward();
  CHECK(block->runs == 1);
}

TEST_CASE("tensors that an offloaded block saved may not be changed in place; the error names the block") {
  const at::Tensor x = input(cpu<float>());
  const auto sine = [](const at::Tensor& h) { return h.sin(); };
  for (const std::string name : {"", "decoder"}) {
    const at::Tensor h = x * 1;
    const at::Tensor y = lt::checkpoint({.mode = lt::CheckpointMode::offload, .name = name}, sine, h);
    h.add_(1);
    const std::string told = name.empty() ? "the checkpointed function" : name;
    CHECK_THROWS_WITH(y.sum().backward(),
                      Catch::Contains("that backward through " + told + " needs has been modified"));
  }
}

TEST_CASE("off: LibTorch saves as it always does") {
  const at::Tensor x = input(cpu<float>());
  lt::detail::SavedTensorKeeper* within = nullptr;
  int runs = 0;
  const auto block = [&](const at::Tensor& x) {
    ++runs;
    within = lt::detail::current_keeper;
    return x.exp();
  };
  lt::checkpoint({.mode = lt::CheckpointMode::off}, block, x).sum().backward();
  CHECK(within == nullptr);
  CHECK(runs == 1);
  lt::checkpoint(block, x);
  CHECK(within != nullptr);
}

TEST_CASE("every K-th layer of a list") {
  const auto runs = [](auto every) {
    torch::manual_seed(0);
    std::vector<FeedForward> blocks(5);
    const at::Tensor x = input(cpu<float>());
    const at::Tensor y = every(blocks, x);
    y.sum().backward();
    std::vector<int> counts;
    for (const auto& block : blocks) counts.push_back(block->runs);
    return std::make_pair(counts, append(gradients(blocks[0]), {y, x.grad()}));
  };
  const auto plain = runs([](auto& blocks, at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  });
  const auto one = runs([](auto& blocks, const at::Tensor& x) { return lt::checkpoint_every<1>(blocks, x); });
  const auto two = runs([](auto& blocks, const at::Tensor& x) { return lt::checkpoint_every<2>(blocks, x); });
  const auto ten =
      runs([](auto& blocks, const at::Tensor& x) { return lt::checkpoint_every<10>(blocks, x); });
  const auto off = runs([](auto& blocks, const at::Tensor& x) {
    return lt::checkpoint_every<1>(blocks, x, {.mode = lt::CheckpointMode::off});
  });
  CHECK(one.first == std::vector<int>{2, 2, 2, 2, 2});
  CHECK(two.first == std::vector<int>{2, 1, 2, 1, 2});
  CHECK(ten.first == std::vector<int>{2, 1, 1, 1, 1});
  CHECK(off.first == std::vector<int>{1, 1, 1, 1, 1});
  for (const auto& run : {one, two, ten, off}) check_same(plain.second, run.second);
}
