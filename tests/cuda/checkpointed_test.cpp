// SPDX-License-Identifier: MIT
// Recomputation on a GPU: the scenarios of tests/parity/checkpointed, whose recomputation runs on the
// engine's thread of the device; the GPU's generator; and offload through pinned memory.
#include "parity/checkpointed/support/scenarios.hpp"
#include "support/cuda.hpp"

using namespace checkpointed;

namespace {

template <class T>
at::TensorOptions gpu() {
  return cpu<T>().device(at::kCUDA);
}

template <class T>
void check_all(const lt::CheckpointOptions& checkpoint) {
  check_same_bits(gpu<T>(), scenarios::batch_norm, checkpoint);
  check_same_bits(gpu<T>(), scenarios::in_place, checkpoint);
  check_same_bits(gpu<T>(), scenarios::views, checkpoint);
  check_same_bits(gpu<T>(), scenarios::nested, checkpoint);
  check_same_bits(gpu<T>(), scenarios::shared_parameters, checkpoint);
  check_same_bits(gpu<T>(), scenarios::frozen, checkpoint);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    check_same_bits(gpu<T>(), scenarios::autocast<false>(type), checkpoint);
    check_same_bits(gpu<T>(), scenarios::autocast<true>(type), checkpoint);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("recomputed blocks on the GPU give the plain run's bits", "", float, double) {
  if (!has_cuda()) return;
  check_all<TestType>({});
  check_same_bits(gpu<TestType>(), scenarios::dropout);
  check_same_bits(gpu<TestType>(), scenarios::spectral_norm);
}

TEMPLATE_TEST_CASE("offloaded blocks on the GPU give the plain run's bits", "", float, double) {
  if (!has_cuda()) return;
  check_all<TestType>({.mode = lt::CheckpointMode::offload});
}

TEST_CASE("a function that moves to the GPU what it is given draws the same there") {
  if (!has_cuda()) return;
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) {
      return torch::dropout(x.to(at::kCUDA), 0.5, true).exp().to(at::kCPU);
    };
    const at::Tensor y = call(block, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("offloaded tensors leave the GPU, parameters and their views stay") {
  if (!has_cuda()) return;
  const auto allocated = [] {
    constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(at::kCUDA));
    return allocator->getDeviceStats(0).allocated_bytes[kAggregate].current;
  };
  const FeedForward block = on(FeedForward(), gpu<float>());
  const at::Tensor x = torch::randn({1 << 16, kWidth}, gpu<float>());
  const auto bytes = [&](lt::CheckpointMode mode) {
    const auto before = allocated();
    const at::Tensor y = lt::checkpoint({.mode = mode}, block, x);
    const auto held = allocated() - before;
    y.sum().backward();
    return held;
  };
  const auto all = bytes(lt::CheckpointMode::off), some = bytes(lt::CheckpointMode::offload);
  CHECK(some <= all / 4);
}
