// SPDX-License-Identifier: MIT
// BackendFlags: set for the run, put back after it, and never at odds with LibTorch's two interfaces for
// TF32.
// Tests base/device: older_libtorch
// Tests base: libtorch_version
#include "support/precompiled.hpp"

#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/policies/backend_flags.hpp>
#include <looptorch/trainer.hpp>

#include "support/operators_called.hpp"
#include "support/toy.hpp"

#include <stdlib.h>

namespace lt = looptorch;

namespace {

#if LOOPTORCH_LIBTORCH_2_9
using at::Float32Backend, at::Float32Op, at::Float32Precision;
#endif

at::Context& context() { return at::globalContext(); }

/// All switches as one value that can be compared. LibTorch throws here if its interfaces for TF32 disagree.
struct Switches {
  bool products = context().allowTF32CuBLAS(), convolutions = context().allowTF32CuDNN();
  bool benchmark = context().benchmarkCuDNN();
  bool deterministic = context().deterministicAlgorithms();
  bool warns = context().deterministicAlgorithmsWarnOnly();
  lt::AttentionKernels attention = lt::detail::attention_kernels();
  at::Float32MatmulPrecision older = context().float32MatmulPrecision();
#if LOOPTORCH_LIBTORCH_2_9
  Float32Precision newer = context().float32Precision(Float32Backend::CUDA, Float32Op::MATMUL);
  Float32Precision conv = context().float32Precision(Float32Backend::CUDA, Float32Op::CONV);
  Float32Precision cpu = context().float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL);
#endif

  bool operator==(const Switches&) const = default;
  /// True if the newer interface, where there is one, says so for products.
  [[nodiscard]] bool newer_is([[maybe_unused]] bool tf32) const {
#if LOOPTORCH_LIBTORCH_2_9
    return newer == (tf32 ? Float32Precision::TF32 : Float32Precision::IEEE);
#else
    return true;
#endif
  }
};

/// Trains one step under the flags; returns what the objective saw.
Switches seen_in_training(const lt::BackendFlags& flags) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::optional<Switches> seen;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    seen.emplace();
    return toy::objective(net, batch);
  };
  lt::Trainer trainer(net, sgd, objective, flags);
  trainer.fit(toy::batches(1));
  return *seen;
}

}  // namespace

TEST_CASE("the switches are set during fit and put back after it; an empty one is left alone") {
  const Switches before;
  for (const bool on : {true, false}) {
    const Switches tf32 = seen_in_training({.tf32 = on});
    CHECK((tf32.products == on && tf32.convolutions == on));
    CHECK(tf32.newer_is(on));
    CHECK((tf32.benchmark == before.benchmark && tf32.deterministic == before.deterministic));
    CHECK(seen_in_training({.cudnn_benchmark = on}).benchmark == on);
    CHECK(seen_in_training({.deterministic = on}).deterministic == on);
    CHECK(Switches() == before);
  }
  CHECK(seen_in_training({}) == before);
}

TEST_CASE("what was set before the run comes back, whichever interface set it") {
  const Switches defaults;
  context().setAllowTF32CuBLAS(true), context().setAllowTF32CuDNN(false);
  context().setBenchmarkCuDNN(true);
  context().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const Switches older;
  const Switches in_training =
      seen_in_training({.tf32 = false, .cudnn_benchmark = false, .deterministic = true});
  CHECK_FALSE(
      (in_training.products || in_training.convolutions || in_training.benchmark || in_training.warns));
  CHECK(Switches() == older);
  context().setAllowTF32CuDNN(true);
  context().setBenchmarkCuDNN(false);
  context().setDeterministicAlgorithms(false, false);

  context().setFloat32MatmulPrecision("medium");
  const Switches medium;
  CHECK(seen_in_training({.tf32 = true}).newer_is(true));
  CHECK(Switches() == medium);
  context().setFloat32MatmulPrecision("highest");
#if LOOPTORCH_LIBTORCH_2_9
  context().setFloat32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL, defaults.cpu);

  // The newer interface alone, after which the older one's getters throw.
  context().setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, Float32Precision::TF32);
  CHECK_THROWS(context().allowTF32CuBLAS());
  CHECK_FALSE(seen_in_training({.tf32 = false}).products);
  CHECK(context().float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == Float32Precision::TF32);
  context().setAllowTF32CuBLAS(false);
  context().setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, defaults.newer);
#endif
  CHECK(Switches() == defaults);
}

TEST_CASE("the switches are put back when training throws, and when a Trainer of step() is gone") {
  const Switches before;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const lt::BackendFlags flags{.tf32 = true, .cudnn_benchmark = true};
  {
    lt::Trainer trainer(
        net, sgd, [](toy::Net&, const int&) -> at::Tensor { throw std::runtime_error("x"); }, flags);
    CHECK_THROWS_WITH(trainer.fit(std::vector{0}), "x");
    CHECK(Switches() == before);
  }
  {
    lt::Trainer trainer(net, sgd, toy::objective, flags);
    trainer.step(toy::batches(1)[0]);
    const auto moved = std::move(trainer);
    CHECK((context().allowTF32CuBLAS() && context().benchmarkCuDNN()));
  }
  CHECK(Switches() == before);
}

TEST_CASE("evaluate runs under the switches, within fit and without") {
  const Switches before;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::BackendFlags{.tf32 = true});
  int evaluated = 0;
  const auto measure = [&](toy::Net&, const toy::Batch&) {
    ++evaluated;
    CHECK(context().allowTF32CuBLAS());
    return 0.0;
  };
  trainer.evaluate(toy::batches(1), measure);
  CHECK(Switches() == before);
  trainer.fit(toy::batches(1));
  trainer.evaluate(toy::batches(1), measure);
  CHECK(evaluated == 2);
  CHECK(Switches() == before);
}

TEST_CASE("BackendScope does the same without a Trainer, nested too") {
  const Switches before;
  {
    const lt::BackendScope outer(lt::BackendFlags{.tf32 = true, .deterministic = true});
    const Switches within;
    CHECK((within.products && within.convolutions && within.deterministic));
    {
      const lt::BackendScope inner(lt::BackendFlags{.tf32 = false, .deterministic = false});
      CHECK_FALSE((context().allowTF32CuBLAS() || context().deterministicAlgorithms()));
    }
    CHECK(Switches() == within);
  }
  CHECK(Switches() == before);
}

TEST_CASE("flags that contradict each other are refused, and then nothing is set") {
  const Switches before;
  const lt::BackendFlags both{.tf32 = true, .cudnn_benchmark = true, .deterministic = true};
  CHECK_THROWS_AS(lt::BackendScope(both), lt::UsageError);
  CHECK_THROWS_WITH(seen_in_training(both), Catch::Contains("deterministic and cudnn_benchmark"));
  CHECK(Switches() == before);
}

TEST_CASE("attention takes the kernels that are allowed, and others after the run") {
  const Switches before;
  const at::Tensor heads = at::randn({1, 2, 8, 16});
  const auto flash_calls = [&] {
    const OperatorsCalled called;
    (void)at::scaled_dot_product_attention(heads, heads, heads);
    return called.count("aten::_scaled_dot_product_flash_attention_for_cpu");
  };
  CHECK(flash_calls() == 1);
  for (const bool flash : {false, true}) {
    const lt::BackendScope scope(lt::BackendFlags{.attention = lt::AttentionKernels{.flash = flash}});
    CHECK(flash_calls() == flash);
  }
  const lt::AttentionKernels without_cudnn{.cudnn = false};
  const Switches seen = seen_in_training({.attention = without_cudnn});
  CHECK(seen.attention == without_cudnn);
  CHECK(seen.benchmark == before.benchmark);
  CHECK(seen_in_training(
            {.attention = lt::AttentionKernels{.flash = false, .efficient = false, .plain = false}})
            .attention == lt::AttentionKernels{false, false, true, false});
  CHECK(Switches() == before);
  const lt::BackendFlags none{.tf32 = true, .attention = lt::AttentionKernels{false, false, false, false}};
  CHECK_THROWS_WITH(
      lt::BackendScope(none),
      "BackendFlags: attention needs a kernel; allow at least one of flash, efficient, cudnn, plain");
  CHECK(Switches() == before);
}

namespace {

/// A model whose first parameter says that it is on CUDA; only the other one is ever used.
struct GuestImpl : torch::nn::Module {
  GuestImpl() {
    const at::Tensor there = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, at::Device(at::kCUDA, 0))),
        c10::DispatchKeySet(c10::DispatchKey::CUDA), caffe2::TypeMeta::Make<float>());
    register_parameter("there", there, /*requires_grad=*/false);
    here = register_parameter("here", torch::ones({2}));
  }
  at::Tensor here;
};
TORCH_MODULE(Guest);

}  // namespace

TEST_CASE("deterministic runs on CUDA ask for cuBLAS's environment variable before they train") {
  const char* const name = "CUBLAS_WORKSPACE_CONFIG";
  const Switches before;
  const auto fit = [] {
    Guest guest;
    torch::optim::SGD sgd({guest->here}, 0.1);
    const auto loss = [](Guest& guest, const int&) { return guest->here.sum(); };
    lt::Trainer trainer(guest, sgd, loss, lt::BackendFlags{.deterministic = true});
    return trainer.fit(std::vector{0}).steps;
  };
  const std::string met = std::getenv(name) ? std::getenv(name) : "";
  unsetenv(name);
  CHECK_THROWS_AS(fit(), lt::UsageError);
  CHECK_THROWS_WITH(fit(), Catch::Contains("CUBLAS_WORKSPACE_CONFIG=:4096:8") && Catch::Contains("not set"));
  setenv(name, ":0:0", 1);
  CHECK_THROWS_WITH(fit(), Catch::Contains("it is ':0:0'"));
  CHECK(Switches() == before);
  for (const char* const value : {":4096:8", ":16:8"}) {
    setenv(name, value, 1);
    CHECK(fit() == 1);
  }
  met.empty() ? unsetenv(name) : setenv(name, met.c_str(), 1);
}

TEST_CASE("deterministic algorithms throw for an operation that has none") {
  const lt::BackendScope scope(lt::BackendFlags{.deterministic = true});
  CHECK_THROWS_WITH(context().alertNotDeterministic("some_operation"),
                    Catch::Contains("some_operation does not have a deterministic implementation"));
}
