// SPDX-License-Identifier: MIT
// Implements Arena: reserves a device's three address ranges, hands out addresses that were never used, and
// returns memory to the system.
#include "support/accelerator/memory/arena.hpp"

#include <c10/util/Exception.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace looptorch_test::accelerator {

Arena::Arena() {
  void* const all =
      ::mmap(nullptr, 3 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(all != MAP_FAILED, "sim: no addresses for a device's memory");
  begin_ = static_cast<char*>(all);
}

char* Arena::reserve(std::size_t bytes) {
  if (bytes > kBytes - used_) return nullptr;
  char* const data = begin_ + used_;
  for (const Copy copy : {Copy::issued, Copy::late})
    if (::mprotect(in(copy, data), bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  used_ += bytes;
  return data;
}

void Arena::release(char* begin, std::size_t bytes) {
  for (const Copy copy : {Copy::issued, Copy::late})
    ::mmap(in(copy, begin), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void poison(char* data, std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{8} << 20;
  std::memset(data, 0xff, std::min(bytes, kMost));
}

}  // namespace looptorch_test::accelerator
