// SPDX-License-Identifier: MIT
// Recomputation on a device: the scenarios of tests/unit/memory/recompute, whose recomputation runs on the
// engine's thread of the device; the device's generator; streams; and offload through pinned memory.
// Tests memory/ambient: streams
#include <looptorch/base/device/older_libtorch.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/memory/recompute/host_copy.hpp>

#include "support/device.hpp"
#include "unit/memory/recompute/support/scenarios.hpp"

#include <thread>
#include <type_traits>
#include <utility>

using namespace checkpointed;
using namespace looptorch::testing;

namespace {

template <class T>
at::TensorOptions there() {
  return cpu<T>().device(test_device());
}

template <class T>
void check_all(const lt::CheckpointOptions& checkpoint) {
  check_same_bits(there<T>(), scenarios::batch_norm, checkpoint);
  check_same_bits(there<T>(), scenarios::in_place, checkpoint);
  check_same_bits(there<T>(), scenarios::views, checkpoint);
  check_same_bits(there<T>(), scenarios::nested, checkpoint);
  check_same_bits(there<T>(), scenarios::shared_parameters, checkpoint);
  check_same_bits(there<T>(), scenarios::frozen, checkpoint);
  check_same_bits(there<T>(), scenarios::dropout, checkpoint);
  check_same_bits(there<T>(), scenarios::penalized, checkpoint);
  check_same_bits(there<T>(), scenarios::double_backward, checkpoint);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    check_same_bits(there<T>(), scenarios::autocast<false>(type), checkpoint);
    check_same_bits(there<T>(), scenarios::autocast<true>(type), checkpoint);
  }
}

/// Bytes of tensors on the device.
std::int64_t allocated() {
  constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  auto* allocator = lt::detail::device_allocator(test_device().type());
  return allocator->getDeviceStats(0).allocated_bytes[kAggregate].current;
}

/// Another stream than the current one, which waits for it.
c10::Stream side_stream() {
  const c10::impl::VirtualGuardImpl guard(test_device().type());
  const c10::Stream side = guard.getStreamFromGlobalPool(guard.getDevice());
  lt::detail::order(lt::detail::current_stream(guard.getDevice()), side);
  return side;
}

}  // namespace

TEMPLATE_TEST_CASE("recomputed blocks on a device give the plain run's bits", "", float, double) {
  if (!has_device()) return;
  check_all<TestType>({});
  check_same_bits(there<TestType>(), scenarios::spectral_norm);
}

TEMPLATE_TEST_CASE("offloaded blocks on a device give the plain run's bits", "", float, double) {
  if (!has_device()) return;
  check_all<TestType>({.mode = lt::CheckpointMode::offload});
}

TEST_CASE("a function that moves to a device what it is given draws the same there") {
  if (!has_device()) return;
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) {
      return torch::dropout(x.to(test_device()), 0.5, true).exp().to(at::kCPU);
    };
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("a block runs again on the stream of its first run") {
  if (!has_device()) return;
  const c10::Stream side = side_stream();
  const at::Tensor x = input(there<float>());
  std::vector<c10::Stream> streams;
  const auto block = [&](const at::Tensor& x) {
    streams.push_back(*lt::detail::current_stream(x.device()));
    const at::Tensor h = x.exp();
    const c10::StreamGuard elsewhere(side);
    lt::detail::order(streams.back(), side);
    h.record_stream(side);
    return h.sin();  // the node that asks first is of the other stream
  };
  const at::Tensor y = lt::checkpoint(block, x);
  lt::detail::order(side, lt::detail::current_stream(x.device()));
  y.sum().backward();
  REQUIRE(streams.size() == 2);
  CHECK(streams[0] == streams[1]);
  CHECK(torch::allclose(x.grad(), x.exp().cos() * x.exp()));
}

TEST_CASE("work on captured streams is ordered with the work before and after it") {
  if (!has_device()) return;
  const c10::Stream side = side_stream();
  const auto captured = [&] {
    const c10::StreamGuard guard(side);
    return lt::detail::StreamState(std::vector{test_device()});
  }();
  const at::Tensor x = torch::ones({is_simulated() ? 4 : 1 << 22}, there<float>());
  x.record_stream(side);
  for (int i = 0; i < 3; ++i) {
    x.add_(1);
    {
      const lt::detail::StreamState::Scope scope(captured);
      CHECK(*lt::detail::current_stream(test_device()) == side);
      x.mul_(2);
    }
    CHECK(*lt::detail::current_stream(test_device()) != side);
  }
  if (is_simulated()) CHECK(looptorch_test::accelerator::take_violations() == std::vector<std::string>{});
  CHECK(x.eq(22).all().item<bool>());
}

TEST_CASE("work on captured streams of two devices is ordered on each of them") {
  if (!has_device(1) || !is_simulated()) return;
  const at::Device one = test_device(0), other = test_device(1);
  const c10::impl::VirtualGuardImpl guard(one.type());
  const std::vector<c10::Stream> sides{guard.getStreamFromGlobalPool(one),
                                       guard.getStreamFromGlobalPool(other)};
  const auto captured = [&] {
    const c10::MultiStreamGuard current(sides);
    return lt::detail::StreamState(std::vector{one, other});
  }();
  const Tensors tensors{torch::ones({4}, one), torch::ones({4}, other)};
  for (std::size_t i = 0; i < 2; ++i) {
    lt::detail::order(lt::detail::current_stream(tensors[i].device()), sides[i]);
    tensors[i].record_stream(sides[i]);
  }
  for (int i = 0; i < 3; ++i) {
    for (const at::Tensor& tensor : tensors) tensor.add_(1);
    {
      const lt::detail::StreamState::Scope scope(captured);
      for (const at::Tensor& tensor : tensors) tensor.mul_(2);
    }
  }
  for (const at::Tensor& tensor : tensors) CHECK(tensor.eq(22).all().item<bool>());
  CHECK(looptorch_test::accelerator::take_violations() == std::vector<std::string>{});
}

TEST_CASE("forward and backward on a stream of one's own, large enough to be under way at the same time") {
  if (!has_device()) return;
  for (const auto mode : {lt::CheckpointMode::recompute, lt::CheckpointMode::offload})
    check_same_bits(there<float>(), [&](const auto& call, const at::TensorOptions& options) {
      constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
      const lt::CheckpointOptions checkpoint{.mode = recomputes ? mode : lt::CheckpointMode::off};
      std::vector<FeedForward> blocks;
      for (int i = 0; i < 8; ++i) blocks.push_back(on(FeedForward(), options));
      const at::Tensor x =
          torch::randn({is_simulated() ? 1 << 10 : 1 << 18, kWidth}, options).requires_grad_();
      const c10::Stream side = side_stream();
      {
        const c10::StreamGuard guard(side);
        for (int step = 0; step < 3; ++step) {
          at::Tensor y = x;
          for (const auto& block : blocks) y = lt::checkpoint(checkpoint, block, y);
          y.pow(2).mean().backward();
        }
      }
      lt::detail::order(side, lt::detail::current_stream(x.device()));
      Tensors results{x.grad()};
      for (const auto& block : blocks) append(results, gradients(block));
      synchronize();  // the blocks' memory belongs to the other stream
      return results;
    });
}

TEMPLATE_TEST_CASE("a recurrent layer with cuDNN's dropout is refused, and right within keep", "[cuda]",
                   torch::nn::LSTM, torch::nn::GRU, torch::nn::RNN) {
  if (!has_cuda()) return;
  const auto layer_with = [](double dropout) {
    using Options = std::decay_t<decltype(std::declval<TestType>()->options)>;
    TestType layer(Options(kWidth, kWidth).num_layers(2).dropout(dropout));
    layer->to(test_device());
    return [layer](const at::Tensor& x) { return std::get<0>(layer.ptr()->forward(x)); };
  };
  const auto checked = [](const auto& layer) {
    return [layer](const at::Tensor& x) { return layer(x.sin()).sin(); };
  };
  const at::Tensor x = torch::randn({5, 4, kWidth}, there<float>()).requires_grad_();
  const auto draws = layer_with(0.5), plain = layer_with(0);
  const auto kept = [draws](const at::Tensor& x) { return lt::keep(draws, x.sin()).sin(); };
  const auto refused =
      Catch::Contains("the checkpointed function runs a recurrent layer with dropout, whose masks cuDNN");
  {  // a layer without dropout is recomputed, although LibTorch makes cuDNN's state between its two runs
    const at::Tensor kept_x = x.detach().clone().requires_grad_(),
                     other_x = kept_x.detach().clone().requires_grad_();
    const at::Tensor y = lt::checkpoint(checked(plain), other_x);
    (void)draws(x);
    y.sum().backward();
    checked(plain)(kept_x).sum().backward();
    CHECK(torch::allclose(other_x.grad(), kept_x.grad(), 1e-3, 1e-3));  // cuDNN may sum in another order
  }
  torch::manual_seed(1);  // from here on, cuDNN's state is made anew by the next layer that draws
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor loss = lt::checkpoint(checked(draws), x).sum();
    CHECK_THROWS_WITH(loss.backward(), refused);
  }
  const at::Tensor loss = lt::checkpoint(checked(draws), x).sum();
  torch::manual_seed(2);
  CHECK_THROWS_WITH(loss.backward(), refused);
  CHECK_NOTHROW(lt::checkpoint(kept, x).sum().backward());
  CHECK_NOTHROW(lt::checkpoint({.mode = lt::CheckpointMode::offload}, checked(draws), x).sum().backward());
}

TEST_CASE("a block with dropout on a device runs again while another thread draws from the CPU's generator") {
  if (!has_device()) return;
  torch::manual_seed(3);
  const at::Tensor x = input(there<float>());
  const auto draw_elsewhere = [] { std::thread([] { (void)torch::rand({5}); }).join(); };
  int run = 0;
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor h = torch::dropout(x, 0.5, true).exp();
    if (++run == 1) draw_elsewhere();  // as a loader's worker that augments
    return torch::dropout(h, 0.5, true).sin();
  };
  const at::Tensor y = lt::checkpoint(block, x);
  draw_elsewhere();
  y.sum().backward();
  torch::manual_seed(3);
  const at::Tensor plain = input(there<float>());
  run = 1;
  const at::Tensor expected = block(plain);
  expected.sum().backward();
  check_same({expected, plain.grad()}, {y, x.grad()});
}

TEST_CASE("offloaded tensors leave the device, parameters and their views stay") {
  if (!has_device()) return;
  std::vector<FeedForward> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(on(FeedForward(), there<float>()));
  const at::Tensor x = torch::randn({1 << 16, kWidth}, there<float>());
  const auto bytes = [&](lt::CheckpointMode mode) {
    const auto before = allocated();
    at::Tensor y = x;
    for (const auto& block : blocks) y = lt::checkpoint({.mode = mode}, block, y);
    const auto held = allocated() - before;
    y.sum().backward();
    return held;
  };
  const auto all = bytes(lt::CheckpointMode::off), some = bytes(lt::CheckpointMode::offload);
  CHECK(some <= all / 4);
}

TEST_CASE("a kept result on a device is not computed again, and changes no bit") {
  if (!has_device()) return;
  check_same_bits(there<float>(), [](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    const at::Tensor x = input(options);
    int calls = 0;
    const auto kept = [&](const at::Tensor& h) { return ++calls, torch::dropout(h.sin(), 0.3, true); };
    const auto block = [&](const at::Tensor& x) {
      const at::Tensor h = torch::dropout(x, 0.3, true).exp();
      return torch::dropout((recomputes ? lt::keep(kept, h) : kept(h)).cos(), 0.3, true);
    };
    const at::Tensor y = call(block, x);
    y.sum().backward();
    CHECK(calls == 1);
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("tensors leave the device and come back beside the computation") {
  if (!has_device() || !is_simulated()) return;
  std::vector<FeedForward> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(on(FeedForward(), there<float>()));
  at::Tensor y = torch::randn({16, kWidth}, there<float>());
  synchronize();
  const looptorch_test::accelerator::CountWaits counted;
  for (const auto& block : blocks) y = lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, y);
  const auto left = counted.counts();
  CHECK(left.downloads > 8);
  CHECK(left.copies_passed > left.downloads / 2);
  y.sum().backward();
  CHECK(counted.counts().uploads > 0);
  CHECK(counted.counts().copies_passed > left.copies_passed);
}

TEST_CASE("offloading copies a tensor once, whatever saves it, and neither parameters nor a module's own") {
  if (!has_device() || !is_simulated()) return;
  struct MaskedImpl : torch::nn::Module {
    at::Tensor mask = register_buffer("mask", torch::ones({kWidth}));
    at::Tensor forward(const at::Tensor& x) { return (x * 1) * mask; }
  };
  const auto downloads = [](const auto& block) {
    const at::Tensor x = input(there<float>());
    synchronize();
    const looptorch_test::accelerator::CountWaits counted;
    const at::Tensor y = lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, x);
    const auto count = counted.counts().downloads;
    y.sum().backward();
    return count;
  };
  const auto twice = [](const at::Tensor& x) {
    const at::Tensor h = x * 2;
    return h.sin() + h.cos();
  };
  const at::Tensor weight = torch::ones({kWidth}, there<float>()).requires_grad_();
  const auto weighted = [weight](const at::Tensor& x) { return (x * 1) * weight; };
  CHECK(downloads(twice) == 1);
  CHECK(downloads(weighted) == 1);  // the other factor
  CHECK(downloads(on(Holder<MaskedImpl>(std::make_shared<MaskedImpl>()), there<float>())) == 0);
}

TEST_CASE("a tensor that was fetched ahead for one stream is kept while another reads it") {
  if (!has_device()) return;
  using lt::detail::HostCopy;
  const c10::Stream side = side_stream();
  std::vector<std::shared_ptr<HostCopy>> copies;
  const std::int64_t size = is_simulated() ? 64 : 1 << 20;
  for (int i = 0; i < 8; ++i) copies.push_back(HostCopy::make(torch::full({size}, i, there<float>())));
  std::vector<at::Tensor> sums;
  for (std::size_t i = 4; i-- > 1; i -= 1) {
    {
      const c10::StreamGuard guard(side);
      (void)copies[i]->fetch_back("a block");  // and those before it, for the same stream
    }
    sums.push_back(copies[i - 1]->fetch_back("a block").sum());
  }
  CHECK(at::stack(sums).cpu().equal(torch::tensor({2.0F, 0.0F}) * size));
  if (is_simulated()) CHECK(looptorch_test::accelerator::take_violations() == std::vector<std::string>{});
}

TEST_CASE("tensors that are not dense wait on the host and come back as they were") {
  if (!has_device()) return;
  const at::Tensor base = torch::randn({64, 64, 16}, there<float>());
  const std::vector<at::Tensor> tensors{
      base,
      base.transpose(0, 2),
      base.slice(1, 3, 40),
      base.slice(2, 1, 16, 3).transpose(0, 1),
      base.select(1, 5).unsqueeze(0).expand({70, 64, 16}),
      base.chunk(3, 1)[1],
  };
  std::vector<std::shared_ptr<lt::detail::HostCopy>> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(lt::detail::HostCopy::make(tensor));
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = tensors.size(); i-- > 0;) {
      const at::Tensor back = copies[i]->fetch_back("a block");
      CHECK(back.device() == tensors[i].device());
      CHECK(back.strides() == tensors[i].strides());
      CHECK(same_bits(back, tensors[i]));
    }
}

TEST_CASE("a tensor that is saved once more after a change in place is copied once more") {
  if (!has_device()) return;
  const auto scenario = [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) {
      at::Tensor h = x * 2;
      (void)h.sin();  // saves `h`, and is dropped
      h.add_(1);
      return h.cos();
    };
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  };
  check_same_bits(there<float>(), scenario, {.mode = lt::CheckpointMode::offload});
  if (is_simulated())  // the first copy, which nothing asks for, was still under way
    CHECK_FALSE(looptorch_test::accelerator::take_violations().empty());
}

TEST_CASE("a tensor that was changed in place while it was on its way to the host is noticed") {
  if (!has_device()) return;
  const at::Tensor x = torch::randn({1 << 20}, there<float>()).requires_grad_();
  const auto block = [](const at::Tensor& x) {
    const at::Tensor h = x.exp();
    const at::Tensor y = h.sin();
    h.add_(1);
    return y;
  };
  CHECK_THROWS_AS(lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, x).sum().backward(),
                  lt::CheckpointError);
  if (is_simulated()) CHECK_FALSE(looptorch_test::accelerator::take_violations().empty());
}

TEST_CASE(
    "wherever a device runs out of memory as a block runs again, all is as it was and the next pass is right") {
  if (!has_device() || !is_simulated()) return;
  using looptorch_test::accelerator::With;
  torch::manual_seed(3);
  const auto block = on(Spectral(), there<float>());
  const auto norm = on(Normalized(), there<float>());
  const auto f = [block, norm](const at::Tensor& x) {
    return block(norm(torch::dropout(x, 0.5, true))).exp();
  };
  const at::Tensor x = input(there<float>());
  const lt::CheckpointOptions options{.buffers = append(block->buffers(), norm->buffers())};
  const at::Tensor loss = lt::checkpoint(options, f, x).sum();
  const auto gradient = [&] { return torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0]; };
  const at::Tensor expected = gradient();
  const Tensors before = append(buffers(block), buffers(norm));
  const auto state = [] { return lt::detail::state_of(lt::detail::default_generator(test_device())); };
  const at::Tensor drawn = state();
  int failures = 0;
  for (bool failed = true; failed; failures += failed) {
    failed = false;
    try {
      const With with({.fail_allocation_at = failures + 1});
      (void)gradient();
    } catch (const c10::OutOfMemoryError&) {
      failed = true;
    }
    CHECK(lt::detail::current_keeper == nullptr);
    check_same(before, append(buffers(block), buffers(norm)));
    CHECK(torch::equal(state(), drawn));
    if (failures % 8 == 0) CHECK(same_bits(gradient(), expected));
  }
  CHECK(failures > 20);
}
