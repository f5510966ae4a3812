// SPDX-License-Identifier: MIT
// Generators put back: the CPU's, and one that, as CUDA's, has recurrent layers seed themselves anew when its
// state is set; and the draws of a graph that is captured.
// Tests base/device: capture_scope
#include "support/precompiled.hpp"

#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/device/saved_generator.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <cstring>
#include <memory>

using looptorch::detail::SavedGenerator;

namespace {

/// Counts as CUDA's does: seed and offset are a state that generators can share.
class PhiloxImpl : public c10::GeneratorImpl {
 public:
  struct State {
    std::uint64_t seed, offset;
  };

  explicit PhiloxImpl(std::shared_ptr<State> state, at::Device device = {at::kCUDA, 0})
      : GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::CUDA)), state_(std::move(state)) {}

  std::uint64_t draw() { return state_->seed * 1000 + state_->offset++; }
  int reseeded = 0;

  void set_current_seed(std::uint64_t seed) override { *state_ = {seed, 0}, ++reseeded; }
  void set_offset(std::uint64_t offset) override { state_->offset = offset; }
  std::uint64_t get_offset() const override { return state_->offset; }
  std::uint64_t current_seed() const override { return state_->seed; }
  std::uint64_t seed() override { return state_->seed; }
  void set_state(const c10::TensorImpl& state) override {
    std::memcpy(state_.get(), state.data(), sizeof(State));
    ++reseeded;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor bytes = torch::empty({sizeof(State)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), state_.get(), sizeof(State));
    return bytes.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& source) override {
    state_ = static_cast<const PhiloxImpl&>(*source).state_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<PhiloxImpl>(state_);
  }

 protected:
  GeneratorImpl* clone_impl() const override {
    return new PhiloxImpl(std::make_shared<State>(*state_));  // its owner is an intrusive_ptr
  }

  std::shared_ptr<State> state_;
};

/// Keeps its state to itself, as the generators of most devices do.
class PrivateImpl final : public PhiloxImpl {
 public:
  explicit PrivateImpl(const State& state)
      : PhiloxImpl(std::make_shared<State>(state), at::Device(at::kMTIA, 0)) {}
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return GeneratorImpl::graphsafe_get_state();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& source) override {
    GeneratorImpl::graphsafe_set_state(source);
  }

 private:
  GeneratorImpl* clone_impl() const override { return new PrivateImpl(*state_); }
};

struct Philox {
  at::Generator generator =
      at::make_generator<PhiloxImpl>(std::make_shared<PhiloxImpl::State>(PhiloxImpl::State{7, 0}));
  PhiloxImpl& impl() { return *generator.get<PhiloxImpl>(); }
};

}  // namespace

TEST_CASE("a device's generator goes back by exchange of its state, again and again") {
  Philox philox;
  philox.impl().draw();
  const SavedGenerator captured(philox.generator);
  const std::uint64_t first = philox.impl().draw();
  philox.impl().draw();
  for (int time = 0; time < 3; ++time) {
    captured.restore();
    CHECK(philox.impl().draw() == first);
  }
  CHECK(philox.impl().reseeded == 0);
}

TEST_CASE("afterwards a device's generator continues where it was") {
  Philox philox;
  const SavedGenerator start(philox.generator);
  philox.impl().draw();
  const at::Generator same_state = philox.generator.graphsafe_get_state();
  {
    const SavedGenerator::Scope scope(philox.generator);
    start.restore();
    CHECK(philox.impl().draw() == 7000);
    CHECK(philox.impl().draw() == 7001);
  }
  CHECK(philox.impl().draw() == 7001);
  CHECK(same_state.get_offset() == 2);  // it is the very state that it drew from before
  CHECK(philox.impl().reseeded == 0);
}

TEST_CASE("captured states are the same if nothing was drawn between") {
  Philox philox;
  const SavedGenerator a(philox.generator), b(philox.generator);
  philox.impl().draw();
  CHECK(a.same(b));
  CHECK_FALSE(a.same(SavedGenerator(philox.generator)));
}

TEST_CASE("a device's generator that cannot exchange its state goes back by it") {
  at::Generator generator = at::make_generator<PrivateImpl>(PhiloxImpl::State{7, 0});
  auto& impl = *generator.get<PrivateImpl>();
  const SavedGenerator captured(generator);
  impl.draw();
  {
    const SavedGenerator::Scope scope(generator);
    captured.restore();
    CHECK(impl.draw() == 7000);
    CHECK(impl.draw() == 7001);
  }
  CHECK(impl.draw() == 7001);
  CHECK(impl.reseeded == 2);
}

TEST_CASE("the CPU's generator goes back by its state") {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const SavedGenerator captured(generator);
  const at::Tensor first = torch::randn({17}, generator);
  CHECK_FALSE(captured.same(SavedGenerator(generator)));
  const at::Tensor second = [&] {
    const SavedGenerator::Scope scope(generator);
    captured.restore();
    CHECK(captured.same(SavedGenerator(generator)));
    return torch::randn({17}, generator);
  }();
  CHECK(second.equal(first));
  CHECK_FALSE(torch::randn({17}, generator).equal(first));
}

namespace {

/// Only counts what it has drawn.
struct DrawingGraph final : looptorch::detail::DeviceGraph {
  void begin() override {}
  void end() override {}
  void replay() override {}
  at::Generator copy_generator(at::Generator source) override { return source.clone(); }
  std::uint64_t random_offset() const override { return drawn; }
  void set_random_offset(std::uint64_t offset) override { drawn = offset; }
  std::uint64_t drawn = 0;
};

}  // namespace

TEST_CASE("while a graph is captured its draws are put back, and no generator of its device is read") {
  using looptorch::detail::CaptureScope;
  DrawingGraph graph;
  Philox philox;
  CHECK_FALSE(CaptureScope::is_open());
  const CaptureScope scope({at::kCUDA, 0}, graph);
  CHECK(CaptureScope::is_open());
  CHECK(CaptureScope::graph_on({at::kCUDA, 1}) == nullptr);
  graph.drawn = 4;
  const SavedGenerator then(philox.generator);
  graph.drawn = 12;
  {
    const SavedGenerator::Scope restored_later(philox.generator);
    then.restore();
    CHECK(graph.drawn == 4);
    CHECK(then.same(SavedGenerator(philox.generator)));
    graph.drawn = 8;
    CHECK_FALSE(then.same(SavedGenerator(philox.generator)));
  }
  CHECK(graph.drawn == 12);
  CHECK(philox.impl().draw() == 7000);
  CHECK(philox.impl().reseeded == 0);

  const at::Generator on_cpu = at::detail::createCPUGenerator(3);
  const SavedGenerator before(on_cpu);
  const at::Tensor first = torch::rand({3}, on_cpu);
  before.restore();
  CHECK(torch::equal(torch::rand({3}, on_cpu), first));
}
