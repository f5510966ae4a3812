// SPDX-License-Identifier: MIT
// Threads that train at once, and another autograd engine, as Python installs one, which is refused.
// Runs on every device.
// Tests memory: checkpoint
#include "unit/memory/recompute/support/scenarios.hpp"

#include <future>
#include <thread>

using namespace checkpointed;
using torch::autograd::Engine;

namespace {

/// Some steps of a model without random numbers, which two threads would draw from one generator.
struct Training {
  std::vector<Normalized> blocks;
  Spectral last;
  at::Tensor x;

  explicit Training(const at::TensorOptions& options) : last(on(Spectral(), options)), x(input(options)) {
    for (int i = 0; i < 3; ++i) blocks.push_back(on(Normalized(), options));
  }

  template <class Call>
  Tensors steps(const Call& call, int count) const {
    for (int step = 0; step < count; ++step) {
      at::Tensor y = x;
      for (const auto& block : blocks) y = call(block, y);
      call([this, call](const at::Tensor& h) { return call(last, h); }, y).pow(2).mean().backward();
    }
    Tensors results{x.grad()};
    for (const auto& block : blocks) append(append(results, gradients(block)), buffers(block));
    return append(append(results, gradients(last)), buffers(last));
  }
};

}  // namespace

TEMPLATE_TEST_CASE("two threads that train two models at once", "", float, double) {
  const auto options = here<TestType>();
  const auto train = [&](const auto& call) {
    torch::manual_seed(5);
    const Training one(options), other(options);
    auto elsewhere = std::async(std::launch::async, [&] { return other.steps(call, 20); });
    Tensors results = one.steps(call, 20);
    return append(results, elsewhere.get());
  };
  check_same(train(Plain{}), train(Recomputed{}));
}

namespace {

/// A layer without random numbers, with buffers that it reads: two threads may share it.
struct SharedImpl : torch::nn::Module {
  SharedImpl() : linear(register_module("linear", torch::nn::Linear(kWidth, kWidth))) {
    norm = register_module("norm", torch::nn::BatchNorm1d(kWidth));
    norm->eval();
  }
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(norm(linear(x))) * mask; }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor mask = register_buffer("mask", torch::rand({kWidth}));
};
using Shared = Holder<SharedImpl>;

}  // namespace

TEST_CASE("two threads that share one module whose buffers it only reads") {
  if (!lt::testing::place().is_cpu()) return;  // on a device a module with buffers belongs to one thread
  torch::manual_seed(5);
  const Shared block;
  const at::Tensor x = input(cpu<float>());
  const auto gradients_of = [&](const auto& call) {
    const at::Tensor y = call(block, call(block, x));
    return torch::autograd::grad({y.pow(2).mean()}, append(block->parameters(), {x}));
  };
  const Tensors expected = gradients_of(Plain{});
  const auto work = [&] {
    for (int step = 0; step < 300; ++step) {
      const Tensors found = gradients_of(Recomputed{});
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (!same_bits(found[i], expected[i])) return false;
    }
    return true;
  };
  auto elsewhere = std::async(std::launch::async, work);
  CHECK(work());
  CHECK(elsewhere.get());
}

TEST_CASE("a forward on one thread and its backward on another") {
  const auto train = [](const auto& call) {
    torch::manual_seed(5);
    const auto block = on(FeedForward(), here<float>());
    const at::Tensor x = input(here<float>());
    const at::DeviceType device = x.device().type();
    at::autocast::set_autocast_enabled(device, true);
    const at::Tensor loss = call(block, x).to(at::kFloat).sum();
    at::autocast::set_autocast_enabled(device, false);
    at::autocast::clear_cache();
    std::thread([&] { loss.backward(); }).join();
    return append(gradients(block), {x.grad()});
  };
  check_same(train(Plain{}), train(Recomputed{}));
}

TEST_CASE("two threads that differentiate one graph") {
  const auto block = on(FeedForward(), here<float>());
  const at::Tensor x = input(here<float>());
  const at::Tensor loss = lt::checkpoint(block, x).sum();
  const auto gradient = [&] { return torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0]; };
  const at::Tensor alone = gradient();
  auto elsewhere = std::async(std::launch::async, gradient);
  const at::Tensor here = gradient();
  CHECK(same_bits(here, alone));
  CHECK(same_bits(elsewhere.get(), alone));
}

namespace {

class OtherEngine final : public Engine {
 public:
  static Engine& instance() {
    static OtherEngine engine;
    return engine;
  }
  ~OtherEngine() override { stop(); }

 private:
  OtherEngine() = default;
};

/// Installs an engine while it lives.
class EngineScope {
 public:
  explicit EngineScope(Engine& (*engine)()) { torch::autograd::set_default_engine_stub(engine); }
  ~EngineScope() { torch::autograd::set_default_engine_stub(&Engine::get_base_engine); }
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;
};

}  // namespace

TEST_CASE("another engine is refused, installed before or after ours") {
  const auto block = on(FeedForward(), here<float>());
  const at::Tensor x = input(here<float>());
  for (int time = 0; time < 2; ++time) {
    {
      const EngineScope other(&OtherEngine::instance);
      CHECK_THROWS_AS(lt::checkpoint(block, x), lt::CheckpointError);
      CHECK_THROWS_WITH(lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, x),
                        Catch::Contains("another autograd engine than LibTorch's own is installed"));
      const at::Tensor plain = lt::checkpoint({.mode = lt::CheckpointMode::off}, block, x);
      if (x.is_cpu()) CHECK_NOTHROW(plain.sum().backward());  // LibTorch gives it no threads of devices
      const torch::NoGradGuard no_gradients;
      CHECK_NOTHROW(lt::checkpoint(block, x));
    }
    CHECK_NOTHROW(lt::checkpoint(block, x).sum().backward());
  }
}

TEST_CASE("programs without checkpoints keep LibTorch's engine") {
  const EngineScope own(&Engine::get_base_engine);
  const auto block = on(FeedForward(), here<float>());
  lt::checkpoint({.mode = lt::CheckpointMode::off}, block, input(here<float>())).sum().backward();
  const torch::NoGradGuard no_gradients;
  lt::checkpoint(block, input(here<float>()));
  CHECK(&Engine::get_default_engine() == &Engine::get_base_engine());
}
