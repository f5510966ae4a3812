// SPDX-License-Identifier: MIT
// Implements Aliases: makes CPU tensors on the memory of a device's tensors, and device tensors from the
// kernel's results.
#include "support/accelerator/dispatch/aliases.hpp"

#include "support/accelerator/device/allocators.hpp"
#include "support/accelerator/dispatch/values.hpp"
#include "support/accelerator/driver.hpp"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

namespace looptorch_test::accelerator {

namespace {

void copy_flags(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_conj()) to.unsafeGetTensorImpl()->_set_conj(true);
  if (from.is_neg()) to.unsafeGetTensorImpl()->_set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

at::Tensor on_storage(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  copy_flags(like, tensor);
  return tensor;
}

at::Tensor new_tensor(const at::Tensor& like, c10::Device device) {
  const c10::DeviceGuard guard(device);
  at::Tensor tensor = at::detail::empty_strided_generic(like.sizes(), like.strides(), &device_memory(),
                                                        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                        like.scalar_type());
  copy_flags(like, tensor);
  return tensor;
}

}  // namespace

at::Tensor Aliases::of(const at::Tensor& there) {
  if (!is_here(there)) return there;
  auto& alias = aliases_[there.storage().unsafeGetStorageImpl()];
  if (!alias.here) {
    char* const data = driver().in(copy_, there.storage().data());
    alias.here =
        c10::Storage(c10::Storage::use_byte_size_t(), there.storage().nbytes(),
                     c10::DataPtr(data, c10::Device(c10::kCPU)), c10::GetCPUAllocator(), /*resizable=*/true);
    alias.there = there.storage();
    alias.data = data;
  }
  return on_storage(alias.here, c10::DispatchKey::CPU, there);
}

at::Tensor Aliases::back(const at::Tensor& here, c10::Device device, bool& is_new) {
  is_new = false;
  if (!here.defined() || !here.is_cpu() || here.layout() != at::kStrided) return here;
  for (const auto& [storage, alias] : aliases_)
    if (alias.here.unsafeGetStorageImpl() == here.storage().unsafeGetStorageImpl())
      return on_storage(alias.there, c10::DispatchKey::PrivateUse1, here);
  is_new = true;
  at::Tensor there = new_tensor(here, device);
  if (const std::size_t bytes = extent_of(here))
    std::memcpy(driver().in(copy_, data_of(there)), data_of(here), bytes);
  return there;
}

void Aliases::follow(const at::Tensor& there, const at::Tensor& here) {
  if (!is_here(there)) return;
  const auto found = aliases_.find(there.storage().unsafeGetStorageImpl());
  if (found != aliases_.end() && found->second.here.data() != found->second.data) {
    Alias& alias = found->second;
    c10::StorageImpl& storage = *alias.there.unsafeGetStorageImpl();
    grow(storage, alias.here.nbytes(), there.device());
    if (alias.here.nbytes())
      std::memcpy(driver().in(copy_, storage.data()), alias.here.data(), alias.here.nbytes());
    alias.data = alias.here.data();
  }
  if (there.sizes() == here.sizes() && there.strides() == here.strides() &&
      there.storage_offset() == here.storage_offset())
    return;
  there.unsafeGetTensorImpl()->set_sizes_and_strides(here.sizes(), here.strides());
  there.unsafeGetTensorImpl()->set_storage_offset(here.storage_offset());
}

}  // namespace looptorch_test::accelerator
