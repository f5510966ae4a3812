// SPDX-License-Identifier: MIT
// Describes CUDA kernels as C++ text that is compiled at run time, and declares `KernelRunner`, which
// compiles and launches them. A kernel's one argument is a table of tensors, passed by value. So one launch
// processes many tensors without a copy to the device, and a captured graph keeps its own table.
// LOOPTORCH_DETAIL_KERNEL_STRUCTS defines a table's structs once, for the host's code and for the kernel's
// text.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Defines structs, and the constant `text`, which is their definition for a kernel's source. Members have
/// the types that `kKernelPreamble` names.
#define LOOPTORCH_DETAIL_KERNEL_STRUCTS(text, ...) \
  __VA_ARGS__                                      \
  inline constexpr const char* text = #__VA_ARGS__ "\n";

namespace looptorch::detail {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// Threads in a thread block of every kernel.
inline constexpr unsigned kKernelThreads = 256;

/// The beginning of every source's text: defines types, and how a kernel takes its table.
inline constexpr const char* kKernelPreamble = R"cuda(
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define LT_INLINE __device__ __forceinline__
#if defined(LT_TABLE)  // a test's
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define LT_TABLE(Type) const Type
#else
#define LT_TABLE(Type) const __grid_constant__ Type
#endif
)cuda";

/// The `extern "C"` kernels of one source. Runners identify it by its address, so make it static.
struct KernelSource {
  const char* name;                  ///< For example "adamw_8bit".
  std::array<const char*, 4> parts;  ///< The text after the preamble; unused parts are empty.
  std::size_t header_bytes;          ///< A table's size without tensors.
  std::size_t entry_bytes;           ///< Bytes that each tensor adds to it.

  /// Returns how many tensors a table of `bytes` holds.
  [[nodiscard]] std::size_t tensors_in(std::size_t bytes) const {
    return (bytes - header_bytes) / entry_bytes;
  }

  [[nodiscard]] std::string text() const {
    std::string all = kKernelPreamble;
    for (const char* const part : parts)
      if (part) all += part;
    return all;
  }

  /// Returns the compiler's options for tables of `bytes` at most.
  [[nodiscard]] std::vector<std::string> options(std::size_t bytes) const {
    return {"--std=c++17", "--device-as-default-execution-space",
            "-DLT_TENSORS=" + std::to_string(tensors_in(bytes))};
  }
};

/// Compiles and launches kernels on one type of device.
class KernelRunner {
 public:
  /// Sizes of tables: CUDA 12.1 and Volta raised the limit of a kernel's arguments.
  static constexpr std::size_t kLargeTable = 32764, kSmallTable = 4096;

  /// Compiles and loads a source for a device, on the first call. Returns how many bytes a table may have, or
  /// 0 if kernels cannot run there. Compiles nothing while a graph is captured: returns 0 for a source that
  /// was not prepared before.
  virtual std::size_t prepare(const KernelSource& source, c10::Device device) = 0;

  /// Launches a kernel of a prepared source on the device's current stream, and does not wait for it. Throws
  /// KernelError.
  virtual void launch(const KernelSource& source, const char* kernel, c10::Device device, unsigned blocks,
                      const void* table) = 0;

 protected:
  ~KernelRunner() = default;
};

}  // namespace looptorch::detail
