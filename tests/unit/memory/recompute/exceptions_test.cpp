// SPDX-License-Identifier: MIT
// Exceptions out of a block, in its first run and when it runs again: all that was put in place for it is
// taken back, and the model can be used.
// Runs on every device.
// Tests memory/recompute: checkpointed_call, recorder
#include "unit/memory/recompute/support/live_bytes.hpp"
#include "unit/memory/recompute/support/scenarios.hpp"

#include <stdexcept>

using namespace checkpointed;

namespace {

/// Throws in its run of this number, after it has drawn, written to its buffer and changed autocast's state.
struct FailingImpl : SpectralImpl {
  explicit FailingImpl(int fails_in) : fails_in(fails_in) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = SpectralImpl::forward(torch::dropout(x, 0.5, true));
    if (runs == fails_in) throw std::domain_error("the block's own");
    return h.exp().sin();
  }
  int fails_in;
};
using Failing = Holder<FailingImpl>;

}  // namespace

TEST_CASE("an exception in the first run passes through") {
  const auto block = on(Failing(1), here<float>());
  CHECK_THROWS_AS(lt::checkpoint(block, input(here<float>())), std::domain_error);
  CHECK(lt::detail::current_keeper == nullptr);
  // What LibTorch saves next is LibTorch's.
  const at::Tensor x = input(here<float>());
  x.exp().sum().backward();
  CHECK(same_bits(x.grad(), x.exp()));
  CHECK_NOTHROW(lt::checkpoint(block, x).sum().backward());
}

TEST_CASE("an exception when a block runs again leaves everything as it met it") {
  const at::DeviceType device = lt::testing::place().type();
  torch::manual_seed(1);
  const auto block = on(Failing(2), here<float>());
  const at::Tensor x = input(here<float>());
  const at::Tensor y = lt::checkpoint(block, x);
  block->eval();
  const at::Tensor u = block->u.clone();
  torch::manual_seed(2);
  at::autocast::set_autocast_enabled(device, true);
  CHECK_THROWS_AS(y.sum().backward({}, /*keep_graph=*/true), std::domain_error);
  CHECK(at::autocast::is_autocast_enabled(device));
  at::autocast::set_autocast_enabled(device, false);
  CHECK(lt::detail::current_keeper == nullptr);
  CHECK_FALSE(block->is_training());
  CHECK(same_bits(block->u, u));
  const at::Tensor drawn = torch::rand({2}, here<float>());
  torch::manual_seed(2);
  CHECK(same_bits(drawn, torch::rand({2}, here<float>())));

  y.sum().backward();  // the third run succeeds
  CHECK(block->runs == 3);
  CHECK(x.grad().defined());
}

TEST_CASE("the model trains on after an exception in backward, with the plain run's bits") {
  check_same_bits(here<double>(), [](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    const auto block = on(Failing(recomputes ? 2 : 0), options);
    const at::Tensor x = input(options);
    if (recomputes) CHECK_THROWS_AS(call(block, x).sum().backward(), std::domain_error);
    if (!recomputes) call(block, x);
    at::Tensor y = call(block, x);
    y.sum().backward();
    Tensors results{y, x.grad()};
    return append(append(results, gradients(block)), buffers(block));
  });
}

TEST_CASE("a block that catches everything does not catch the end of its second run") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto swallows = [](const at::Tensor& x) {
      at::Tensor y = x.exp();
      try {
        y = y.sin().mul(2).cos();
      } catch (...) {
      }
      return y * 2;
    };
    const auto translates = [](const at::Tensor& x) {
      try {
        return x.exp().sin();
      } catch (...) {
        throw std::logic_error("never seen");
      }
    };
    const at::Tensor y = call(translates, call(swallows, x));
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("a forward that is noexcept runs to its end") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) noexcept { return x.exp().sin() * 3; };
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("wherever memory runs out as a block runs again, all is as it was met and the next pass is right") {
  if (!lt::testing::place().is_cpu()) return;  // device/checkpointed_test.cpp has a device run out of memory
  torch::manual_seed(3);
  const Spectral block;
  const Normalized norm;
  const auto f = [block, norm](const at::Tensor& x) {
    return block(norm(torch::dropout(x, 0.5, true))).exp();
  };
  const at::Tensor x = input(cpu<float>());
  const lt::CheckpointOptions options{.buffers = append(block->buffers(), norm->buffers())};
  const at::Tensor y = lt::checkpoint(options, f, x);
  const at::Tensor expected = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
  const Tensors before = append(buffers(block), buffers(norm));
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  for (int i = 0;; ++i) {
    REQUIRE(i < 1000);
    LiveBytes live;
    live.fail_after(i);
    at::Tensor gradient;
    try {
      gradient = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
    } catch (const std::bad_alloc&) {
    }
    const bool failed = live.has_failed();
    live.fail_after(-1);
    CHECK(lt::detail::current_keeper == nullptr);
    check_same(before, append(buffers(block), buffers(norm)));
    CHECK(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
    if (failed) continue;
    CHECK(same_bits(gradient, expected));
    CHECK(i > 20);
    break;
  }
}
