// SPDX-License-Identifier: MIT
// CudaGraph on LibTorch's own CUDAGraph and allocators, over a CUDA runtime that needs no GPU: what LibTorch
// is left with after a recording that fails at its beginning, within, at its end, or as it becomes a graph;
// how its generator counts what a recording draws.
//
// Tests graph: cuda_graph
#include "support/precompiled.hpp"

#include <looptorch/base/device/saved_generator.hpp>
#include <looptorch/graph/capture_graph.hpp>
#include <looptorch/graph/captured_call.hpp>
#include <looptorch/graph/cuda_graph.hpp>
#include <looptorch/memory/empty_cache.hpp>

#include "cuda_runtime/runtime.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace lt = looptorch;
namespace runtime = looptorch_test::cuda_runtime;
using lt::detail::CudaGraph, lt::detail::DeviceGraph;
using runtime::Call;

namespace {

const c10::Device kDevice(c10::kCUDA, 0);

std::unique_ptr<DeviceGraph> graph_beside(const DeviceGraph* neighbour) {
  return lt::detail::device_graph_maker(c10::kCUDA)(kDevice, neighbour);
}
at::cuda::MempoolId_t pool_of(const DeviceGraph& graph) {
  return static_cast<const CudaGraph&>(graph).pool();
}
int users_of(const DeviceGraph& graph) {
  return c10::cuda::CUDACachingAllocator::getPoolUseCount(0, pool_of(graph));
}

at::Tensor numbers(std::int64_t count = 1000) {
  return at::empty({count}, at::TensorOptions(kDevice).dtype(at::kFloat));
}

template <class Body>
void record(DeviceGraph& graph, const Body& body) {
  lt::detail::capture_without_draws(graph, kDevice, body);
}
void record_sum(DeviceGraph& graph) {
  record(graph, [] { (void)numbers().add_(1); });
}

/// What every recording may do after one that failed: in the pool of a graph that was there before, with
/// pinned memory; what has been freed returns to the device.
void check_that_recording_goes_on(const DeviceGraph& before) {
  const int users = users_of(before);
  {
    const auto next = graph_beside(&before);
    record(*next, [] {
      (void)numbers().add_(1);
      (void)at::empty({8}, at::TensorOptions().pinned_memory(true));
    });
    next->replay();
    CHECK(users_of(before) == users + 1);
  }
  CHECK(users_of(before) == users);
  { const at::Tensor big = numbers(10'000'000); }
  CHECK(lt::empty_cache(kDevice) >= 40'000'000);
}

}  // namespace

TEST_CASE("a recording that waits for the device leaves LibTorch as it was") {
  const auto first = graph_beside(nullptr);
  record_sum(*first);
  CHECK(users_of(*first) == 1);
  {
    const auto failed = graph_beside(first.get());
    CHECK_THROWS(record(*failed, [] { (void)numbers().sum().item<float>(); }));
  }
  CHECK(users_of(*first) == 1);
  check_that_recording_goes_on(*first);
}

TEST_CASE("a device without an index is the current one, also for a recording that fails") {
  const auto maker = lt::detail::device_graph_maker(c10::kCUDA);
  const auto failed = maker(c10::Device(c10::kCUDA), nullptr);
  CHECK_THROWS(record(*failed, [] { (void)numbers().sum().item<float>(); }));
  CHECK(lt::empty_cache(kDevice) >= 0);
  const auto next = maker(c10::Device(c10::kCUDA), nullptr);
  record_sum(*next);
  CHECK(users_of(*next) == 1);
}

TEST_CASE("a recording that throws leaves LibTorch as it was") {
  const auto first = graph_beside(nullptr);
  record_sum(*first);
  {
    const auto failed = graph_beside(first.get());
    CHECK_THROWS_AS(record(*failed, [] { throw std::runtime_error("the objective's own"); }),
                    std::runtime_error);
  }
  CHECK(users_of(*first) == 1);
  check_that_recording_goes_on(*first);
}

TEST_CASE("recordings that CUDA refuses at their beginning or end leave LibTorch as it was") {
  const auto first = graph_beside(nullptr);
  record_sum(*first);
  for (const Call call : {Call::begin_capture, Call::end_capture, Call::instantiate}) {
    {
      const auto failed = graph_beside(first.get());
      runtime::fail_next(call, cudaErrorMemoryAllocation);
      CHECK_THROWS(record_sum(*failed));
    }
    CHECK(users_of(*first) == 1);
    check_that_recording_goes_on(*first);
  }
}

TEST_CASE("a graph that is alone takes its memory with it, whether it was made or not") {
  (void)lt::empty_cache(kDevice);
  for (const int failure : {-1, static_cast<int>(Call::begin_capture), static_cast<int>(Call::instantiate)}) {
    const auto before = runtime::counts();
    {
      const auto graph = graph_beside(nullptr);
      if (failure >= 0) runtime::fail_next(static_cast<Call>(failure), cudaErrorMemoryAllocation);
      try {
        record_sum(*graph);
      } catch (const c10::Error&) {
        CHECK(failure >= 0);
      }
    }
    (void)lt::empty_cache(kDevice);
    CHECK(runtime::counts().device_bytes == before.device_bytes);
    CHECK(runtime::counts().graphs_alive == before.graphs_alive);
  }
}

TEST_CASE("what draws in a recording can draw the same numbers again, which a replay counts once") {
  const auto graph = graph_beside(nullptr);
  at::Generator generator = lt::detail::default_generator(kDevice);
  lt::detail::GraphGenerator of_graph(kDevice, *graph);
  const auto draw = [&] { return (void)numbers().uniform_(), graph->random_offset(); };
  std::vector<std::uint64_t> offsets;
  lt::detail::capture_graph(*graph, kDevice, [&] {
    offsets.push_back(draw());
    const lt::detail::SavedGenerator then(generator);
    offsets.push_back(draw());
    CHECK_FALSE(then.same(lt::detail::SavedGenerator(generator)));
    offsets.push_back(draw());
    {
      const lt::detail::SavedGenerator::Scope restored_later(generator);
      then.restore();
      CHECK(then.same(lt::detail::SavedGenerator(generator)));
      CHECK(draw() == offsets[1]);
    }
  });
  CHECK(offsets == std::vector<std::uint64_t>{4, 8, 12});
  const std::uint64_t before = generator.get_offset();
  of_graph.before_replay();
  graph->replay();
  of_graph.after_replay();
  CHECK(generator.get_offset() == before + 12);
}

TEST_CASE("graphs of a pool use the same memory, one after the other") {
  (void)lt::empty_cache(kDevice);
  const auto work = [] { (void)numbers(10'000'000).add_(1); };
  const auto first = graph_beside(nullptr);
  record(*first, work);
  const auto before = runtime::counts();
  for (int more = 0; more < 3; ++more) {
    const auto next = graph_beside(first.get());
    record(*next, work);
    CHECK(runtime::counts().device_bytes == before.device_bytes);
  }
}

TEST_CASE("a recording has the memory that eager work has left, and says if that is not enough") {
  (void)lt::empty_cache(kDevice);
  runtime::limit_device(runtime::counts().device_bytes + 60'000'000);
  { const at::Tensor left = numbers(10'000'000); }
  at::Tensor result;
  lt::CapturedCall call(kDevice, [&] { result = numbers(10'000'000); });
  call.replay();
  CHECK_THROWS_AS(lt::CapturedCall(kDevice, [&] { (void)numbers(10'000'000); }), c10::OutOfMemoryError);
  runtime::limit_device(0);
}
