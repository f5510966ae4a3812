// SPDX-License-Identifier: MIT
// Chooses the device that a program's flag `--device` names, and refuses a CUDA device that this LibTorch
// cannot use. Also returns the peak memory for a program's summary: on an accelerator that of tensors, on a
// CPU that of the whole process.
#pragma once

#include <looptorch/app/device/cuda_query.hpp>
#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace looptorch::app {

namespace detail {

/// Returns the device that a name such as "cuda:1" names, or nothing if it names none.
inline std::optional<at::Device> device_of(const std::string& name) {
  try {
    const at::Device device(name);
    return device.has_index() ? device : at::Device(device.type(), 0);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// Throws UsageError if LibTorch cannot compute on this machine's CUDA device.
inline void require_usable_cuda(std::size_t index, const CudaQuery& query) {
  const auto [build, machine] = query();
  const std::string why = build && machine ? why_unusable(*build, *machine, index) : "";
  if (!why.empty()) throw UsageError("--device: " + why);
}

}  // namespace detail

/// Returns the device of "cpu", "cuda", "cuda:1", LibTorch's name of another accelerator such as "xpu:1", or
/// "auto": the accelerator if there is one. Throws UsageError for another name, for an absent device, and
/// for a CUDA device that this LibTorch cannot use: a GPU without kernels, or a driver that is too old.
/// "auto" throws for such a device too, since training on the CPU instead would take many times as long,
/// unnoticed.
inline at::Device choose_device(const std::string& name, const CudaQuery& query = query_cuda) {
  if (name == "cpu") return at::kCPU;
  const auto named = detail::device_of(name);
  // Checked before LibTorch looks for devices: it would warn of an old driver and find none.
  if (name == "auto" ? !c10::is_privateuse1_backend_registered() : named && named->is_cuda())
    detail::require_usable_cuda(named ? static_cast<std::size_t>(named->index()) : 0, query);
  const auto here = looptorch::detail::accelerator_here();
  if (name == "auto") return here ? at::Device(*here, 0) : at::Device(at::kCPU);
  const auto type = here.value_or(at::kCUDA);
  if (!named || (named->type() != type && !named->is_cuda())) {
    const std::string known = c10::DeviceTypeName(type, /*lower_case=*/true);
    throw UsageError(message("--device: \"", name, "\" is not cpu, ", known, ", ", known, ":N or auto"));
  }
  const int count = named->type() == here ? at::accelerator::deviceCount() : 0;
  if (named->index() < count) return *named;
  throw UsageError(message("--device: there is no ", name, "; ", c10::DeviceTypeName(named->type()),
                           " devices here: ", count));
}

/// Returns why a CUDA device computes no bf16; empty for one that does, and for another device.
inline std::string why_no_bf16(at::Device device, const CudaQuery& query = query_cuda) {
  if (!device.is_cuda()) return {};
  const auto machine = query().machine;
  return machine ? why_no_bf16(*machine, static_cast<std::size_t>(std::max<int>(device.index(), 0))) : "";
}

/// Returns the peak memory: that of tensors on an accelerator, else that of the whole process.
inline std::int64_t peak_bytes(at::Device device) {
  constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  if (auto* allocator = looptorch::detail::caching_allocator(device))
    return allocator->getDeviceStats(looptorch::detail::with_index(device).index())
        .allocated_bytes[kAggregate]
        .peak;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace looptorch::app
