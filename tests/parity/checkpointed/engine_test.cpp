// SPDX-License-Identifier: MIT
// Another autograd engine, as Python installs one, is refused. ctest runs this file in a process of its own.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;
using torch::autograd::Engine;

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
  const FeedForward block;
  const at::Tensor x = input(cpu<float>());
  for (int time = 0; time < 2; ++time) {
    {
      const EngineScope other(&OtherEngine::instance);
      CHECK_THROWS_AS(lt::checkpoint(block, x), lt::CheckpointError);
      CHECK_THROWS_WITH(lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, x),
                        Catch::Contains("another autograd engine than LibTorch's own is installed"));
      CHECK_NOTHROW(lt::checkpoint({.mode = lt::CheckpointMode::off}, block, x).sum().backward());
      const torch::NoGradGuard no_gradients;
      CHECK_NOTHROW(lt::checkpoint(block, x));
    }
    CHECK_NOTHROW(lt::checkpoint(block, x).sum().backward());
  }
}

TEST_CASE("programs without checkpoints keep LibTorch's engine") {
  const EngineScope own(&Engine::get_base_engine);
  const FeedForward block;
  lt::checkpoint({.mode = lt::CheckpointMode::off}, block, input(cpu<float>())).sum().backward();
  const torch::NoGradGuard no_gradients;
  lt::checkpoint(block, input(cpu<float>()));
  CHECK(&Engine::get_default_engine() == &Engine::get_base_engine());
}
