// SPDX-License-Identifier: MIT
// The addresses of one device's memory, three times: those that tensors hold, which nothing may touch, and at
// a fixed distance two copies of the contents. Kernels run on the first as soon as they are issued. Behind
// the host, they run once more on the second when their turn comes: there is what the device would hold.
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
