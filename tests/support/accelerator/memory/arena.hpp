// SPDX-License-Identifier: MIT
// Reserves three address ranges of equal size for a device's memory. Tensors have addresses in the first,
// which cannot be accessed. The second holds the contents on which kernels compute as soon as they are
// issued. If the device runs behind the host, kernels compute again in the third when their turn comes: it
// has what a real device would hold.
#pragma once

#include <cstddef>

namespace looptorch_test::accelerator {

/// One of the copies.
enum class Copy { issued, late };

class Arena {
 public:
  static constexpr std::size_t kBytes = std::size_t{128} << 30;

  Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] bool contains(const void* address) const {
    return address >= begin_ && address < begin_ + kBytes;
  }
  /// Returns where a copy holds what `address` names.
  [[nodiscard]] char* in(Copy copy, const void* address) const {
    return const_cast<char*>(static_cast<const char*>(address)) +
           (copy == Copy::issued ? kBytes : 2 * kBytes);
  }

  /// Returns addresses that were never used, or nullptr at the end.
  [[nodiscard]] char* reserve(std::size_t bytes);
  /// Gives the memory behind addresses back to the system. The addresses are not used again.
  void release(char* begin, std::size_t bytes);

 private:
  char* begin_;
  std::size_t used_ = 0;
};

/// Fills memory with NaN, or -1, up to 8 MiB.
void poison(char* data, std::size_t bytes);

}  // namespace looptorch_test::accelerator
