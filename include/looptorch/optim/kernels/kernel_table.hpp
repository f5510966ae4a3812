// SPDX-License-Identifier: MIT
// Builds the table that an optimizer's CUDA kernel gets as its argument: a header for the whole launch, the
// number of each tensor's first thread block, and an entry for each tensor.
#pragma once

#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/base/device/kernel_source.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>

namespace looptorch::detail {

/// In a kernel's source: `struct Table : Header { u32 begins[kLists][LT_TENSORS]; Entry entries[LT_TENSORS];
/// }`. `Header` has a member `count`, the number of tensors.
template <class Header, class Entry, std::size_t kLists>
class KernelTable {
 public:
  /// The bytes that a table takes by itself and for each tensor, for a KernelSource. Entries are aligned to 8
  /// bytes.
  static constexpr std::size_t kHeaderBytes = sizeof(Header) + alignof(std::uint64_t);
  static constexpr std::size_t kEntryBytes = sizeof(Entry) + kLists * sizeof(std::uint32_t);

  KernelTable(const Header& header, std::size_t table_bytes)
      : header_(header), capacity_((table_bytes - kHeaderBytes) / kEntryBytes) {
    static_assert(sizeof(Header) % alignof(std::uint64_t) == 0);
    header_.count = 0;
  }

  [[nodiscard]] bool is_full() const { return header_.count == capacity_; }
  [[nodiscard]] bool is_empty() const { return header_.count == 0; }
  void clear() { header_.count = 0; }

  /// Adds a tensor unless the table is full.
  void add(const Entry& entry, const std::array<std::uint32_t, kLists>& begins) {
    for (std::size_t i = 0; i < kLists; ++i)
      write(sizeof(Header) + (i * capacity_ + header_.count) * sizeof(std::uint32_t), begins[i]);
    write(entries_at() + header_.count * sizeof(Entry), entry);
    ++header_.count;
  }

  [[nodiscard]] Header& header() { return header_; }
  [[nodiscard]] std::uint32_t count() const { return header_.count; }

  /// Returns the table's memory.
  [[nodiscard]] const void* data() {
    write(0, header_);
    return bytes_.data();
  }

 private:
  [[nodiscard]] std::size_t entries_at() const {
    const std::size_t end = sizeof(Header) + kLists * capacity_ * sizeof(std::uint32_t);
    return (end + 7) / 8 * 8;
  }
  template <class Value>
  void write(std::size_t at, const Value& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }

  Header header_;
  std::size_t capacity_;
  alignas(16) std::array<std::byte, KernelRunner::kLargeTable> bytes_;
};

/// Returns the kernels that update parameters like this one, which are compiled now unless they were before.
/// Empty where tensor operations stay: on a CPU, on other accelerators, in other dtypes.
[[nodiscard]] inline ReadyKernels kernels_for(const KernelSource& source, const at::Tensor& parameter) {
  const at::ScalarType type = parameter.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return {};
  return ready_kernels(source, parameter.device());
}

/// Returns the name of a kernel for weights of a dtype, as "adamw_8bit_bf16".
[[nodiscard]] inline std::string kernel_name(const char* kernel, at::ScalarType type) {
  return std::string(kernel) + (type == at::kFloat ? "_fp32" : type == at::kHalf ? "_fp16" : "_bf16");
}

/// Returns a tensor's memory; null for an undefined one.
[[nodiscard]] inline void* memory_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

/// Returns the memory of a 0-dim fp32 tensor; null without one.
[[nodiscard]] inline const float* number_or_null(const std::optional<at::Tensor>& tensor) {
  return tensor ? tensor->const_data_ptr<float>() : nullptr;
}

/// Returns the memory of a rate on the device, 0-dim fp64; null for an undefined tensor.
[[nodiscard]] inline const double* rate_or_null(const at::Tensor& rate) {
  return rate.defined() ? rate.const_data_ptr<double>() : nullptr;
}

/// Returns how many thread blocks update `size` elements where each updates 64 blocks of 256.
[[nodiscard]] inline std::uint32_t thread_blocks_of(std::uint64_t size) {
  constexpr std::uint64_t kElements = 64 * 256;
  return static_cast<std::uint32_t>((size + kElements - 1) / kElements);
}

/// True if all addresses are multiples of 16.
[[nodiscard]] inline bool are_aligned(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 0;
  for (const void* const pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % 16 == 0;
}

}  // namespace looptorch::detail
