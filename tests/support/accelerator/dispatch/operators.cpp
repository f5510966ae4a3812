// SPDX-License-Identifier: MIT
// Kernels of operators that make tensors and views on a device, or read its memory.
#include "support/accelerator/device/allocators.hpp"
#include "support/accelerator/dispatch/aliases.hpp"
#include "support/accelerator/dispatch/values.hpp"
#include "support/accelerator/driver.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <optional>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_of_options(std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                              std::optional<bool> pin) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided, "sim: tensors are strided, not ", *layout);
  TORCH_CHECK(!c10::pinned_memory_or_default(pin), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(device && device->is_privateuseone(), "sim: a tensor of another device");
  return device->has_index() ? *device : accelerator::device(current_device());
}

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> type, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin,
                 std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_of_options(layout, device, pin));
  return at::detail::empty_generic(size, &device_memory(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin) {
  const c10::DeviceGuard guard(device_of_options(layout, device, pin));
  return at::detail::empty_strided_generic(size, stride, &device_memory(), kKeys,
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<c10::MemoryFormat> format) {
  auto* const impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  const std::size_t bytes = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.element_size(), static_cast<std::size_t>(self.storage_offset()));
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (self.numel() > 0 && storage.nbytes() < bytes) grow(storage, bytes, self.device());
  return self;
}

at::Scalar item(const at::Tensor& self) {
  const Lock lock(driver().mutex);
  const int index = self.device().index(), stream = current_stream(index);
  const std::string* const name = driver().ledger.ran("item");
  driver().begin_launch(index, *name);
  const Time time = driver().tick(stream);
  driver().access(stream, time, data_of(self), extent_of(self), false, name);
  driver().wait(Wait::item, "item", index, driver().timeline.stream(stream));
  return at::native::_local_scalar_dense_cpu(Aliases(driver().truth()).of(self));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
at::Tensor unfold(const at::Tensor& self, std::int64_t dimension, std::int64_t size, std::int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}
at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, std::int64_t offset,
                               at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_memory().recordStream(self.storage().data_ptr(), stream);
}

/// Module::to asks whether a tensor can take another's place.
bool is_compatible(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == at::kStrided && from.layout() == at::kStrided;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize);
  library.impl("_local_scalar_dense", &item);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &unfold);
  library.impl("view_as_real", &view_as_real);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  library.impl("record_stream", &record_stream);
  library.impl("_has_compatible_shallow_copy_type", &is_compatible);
}

// LibTorch 2.7 has no kernel of it that falls through to the device's.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", &is_compatible);
}

}  // namespace looptorch_test::accelerator
