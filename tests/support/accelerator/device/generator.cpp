// SPDX-License-Identifier: MIT
// Implements the random generator of a simulated device as a c10::GeneratorImpl, also for graphs: their
// replays draw new numbers.
#include "support/accelerator/device/generator.hpp"

#include "support/accelerator/driver.hpp"
#include "support/accelerator/graph/recording.hpp"
#include "support/accelerator/order/work_queue.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

/// Seed and offset are a state that generators can exchange, as CUDA's do for graphs.
class Generator final : public c10::GeneratorImpl {
 public:
  struct State {
    std::uint64_t seed = c10::default_rng_seed_val, offset = 0, offset_in_graph = 0;
    bool capturing = false;

    [[nodiscard]] std::uint64_t seed_at(std::uint64_t at) const {
      return Dice(seed * 0x9e3779b97f4a7c15 + at).next();
    }
  };

  explicit Generator(c10::DeviceIndex device, std::shared_ptr<State> state = std::make_shared<State>())
      : GeneratorImpl(c10::Device(kDeviceType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}
  static c10::DeviceType device_type() { return kDeviceType; }

  void set_current_seed(std::uint64_t seed) override {
    refuse_in_recording(device().index(), "set_current_seed");
    state_->seed = seed, state_->offset = 0;
  }
  void set_offset(std::uint64_t offset) override {
    refuse_in_recording(device().index(), "set_offset");
    state_->offset = offset;
  }
  std::uint64_t get_offset() const override {
    refuse_in_recording(device().index(), "get_offset");
    return state_->offset;
  }
  std::uint64_t current_seed() const override {
    refuse_in_recording(device().index(), "current_seed");
    return state_->seed;
  }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_->seed;
  }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.dtype() == caffe2::TypeMeta::Make<std::uint8_t>() && state.numel() == kStateBytes &&
                    state.device().is_cpu() && state.is_contiguous(),
                "RNG state must be 16 contiguous bytes on a CPU");
    const char* const data = static_cast<const char*>(state.data());
    std::uint64_t offset = 0;
    std::memcpy(&offset, data + 8, 8);
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    std::memcpy(&state_->seed, data, 8);
    state_->offset = offset;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    refuse_in_recording(device().index(), "get_state");
    at::Tensor state = at::detail::empty_cpu({kStateBytes}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), &state_->seed, 8);
    std::memcpy(static_cast<char*>(state.mutable_data_ptr()) + 8, &state_->offset, 8);
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& source) override {
    state_ = static_cast<const Generator&>(*source).state_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device().index(), state_);
  }

  Seed draw() {
    constexpr std::uint64_t kAdvance = 4;
    Recording* const recording = recording_here(device().index());
    TORCH_CHECK(recording || !state_->capturing,
                "Offset increment outside graph capture encountered unexpectedly.");
    if (!recording) return {state_->seed_at(std::exchange(state_->offset, state_->offset + kAdvance))};
    const auto offset = std::exchange(state_->offset_in_graph, state_->offset_in_graph + kAdvance);
    return {0, recording->add_draw(state_.get(), offset)};
  }
  [[nodiscard]] std::shared_ptr<void> state() const { return state_; }

 private:
  static constexpr std::int64_t kStateBytes = 16;

  GeneratorImpl* clone_impl() const override {
    return new Generator(device().index(), std::make_shared<State>(State{state_->seed, state_->offset}));
  }

  std::shared_ptr<State> state_;
};

c10::DeviceIndex index_of(int device) {
  return static_cast<c10::DeviceIndex>(device < 0 ? current_device() : device);
}

}  // namespace

at::Generator make_generator(int device) { return at::make_generator<Generator>(index_of(device)); }

const at::Generator& default_generator(int device) {
  static auto* const generators = [] {
    auto* const all = new std::array<at::Generator, kMaxDevices>;
    for (int i = 0; i < kMaxDevices; ++i) (*all)[static_cast<std::size_t>(i)] = make_generator(i);
    return all;
  }();
  return generators->at(static_cast<std::size_t>(index_of(device)));
}

Seed draw_seed(const std::optional<at::Generator>& given, int device) {
  at::Generator generator = given && given->defined() ? *given : default_generator(device);
  TORCH_CHECK(generator.device().type() == kDeviceType,
              "Expected a 'sim' device type for generator but found '", generator.device(), "'");
  const std::lock_guard lock(generator.mutex());
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->draw();
}

std::uint64_t mark_capturing(const std::shared_ptr<void>& state, bool capturing) {
  auto& its = *static_cast<Generator::State*>(state.get());
  its.capturing = capturing;
  return capturing ? its.offset_in_graph = 0 : its.offset_in_graph;
}

std::uint64_t& offset_in_graph(const std::shared_ptr<void>& state) {
  return static_cast<Generator::State*>(state.get())->offset_in_graph;
}

std::vector<std::uint64_t> draw_at(const std::shared_ptr<void>& state,
                                   const std::vector<std::uint64_t>& offsets, std::uint64_t advance) {
  auto& its = *static_cast<Generator::State*>(state.get());
  std::vector<std::uint64_t> seeds;
  for (const std::uint64_t offset : offsets) seeds.push_back(its.seed_at(its.offset + offset));
  its.offset += advance;
  return seeds;
}

std::shared_ptr<void> generator_state(int device) {
  return static_cast<Generator*>(default_generator(device).unsafeGetGeneratorImpl())->state();
}

}  // namespace looptorch_test::accelerator
