// SPDX-License-Identifier: MIT
#include "support/accelerator/device/generator.hpp"

#include "support/accelerator/driver.hpp"
#include "support/accelerator/order/work_queue.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <mutex>

namespace looptorch_test::accelerator {

namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(kDeviceType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  static c10::DeviceType device_type() { return kDeviceType; }

  void set_current_seed(std::uint64_t seed) override { seed_ = seed, offset_ = 0; }
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.dtype() == caffe2::TypeMeta::Make<std::uint8_t>() && state.numel() == kStateBytes &&
                    state.device().is_cpu() && state.is_contiguous(),
                "RNG state must be 16 contiguous bytes on a CPU");
    const char* const data = static_cast<const char*>(state.data());
    std::uint64_t offset = 0;
    std::memcpy(&offset, data + 8, 8);
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    std::memcpy(&seed_, data, 8);
    offset_ = offset;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({kStateBytes}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), &seed_, 8);
    std::memcpy(static_cast<char*>(state.mutable_data_ptr()) + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }

  std::uint64_t draw() {
    Dice dice(seed_ * 0x9e3779b97f4a7c15 + offset_);
    offset_ += 4;
    return dice.next();
  }

 private:
  static constexpr std::int64_t kStateBytes = 16;

  GeneratorImpl* clone_impl() const override {
    auto* const copy = new Generator(device().index());
    copy->seed_ = seed_, copy->offset_ = offset_;
    return copy;
  }

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
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

std::uint64_t draw_seed(const std::optional<at::Generator>& given, int device) {
  at::Generator generator = given && given->defined() ? *given : default_generator(device);
  TORCH_CHECK(generator.device().type() == kDeviceType,
              "Expected a 'sim' device type for generator but found '", generator.device(), "'");
  const std::lock_guard lock(generator.mutex());
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->draw();
}

}  // namespace looptorch_test::accelerator
