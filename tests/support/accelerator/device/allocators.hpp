// SPDX-License-Identifier: MIT
// LibTorch's allocators for the simulated accelerator: of device memory and of pinned memory.
#pragma once

#include <looptorch/base/device/older_libtorch.hpp>

#include <cstddef>

namespace looptorch_test::accelerator {

[[nodiscard]] looptorch::detail::DeviceAllocator& device_memory();
[[nodiscard]] c10::Allocator& pinned_memory();

/// Gives a storage more memory on its device; what it holds stays.
void grow(c10::StorageImpl& storage, std::size_t bytes, c10::Device device);

}  // namespace looptorch_test::accelerator
