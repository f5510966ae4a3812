// SPDX-License-Identifier: MIT
// The bytes of CPU tensors, as counted by counting_allocator.cpp. C linkage, for Python's ctypes.
#pragma once

#include <cstdint>

extern "C" {
/// Returns the bytes of all living tensors.
std::int64_t bench_live_bytes();
/// Resets the peak to the bytes of the living tensors.
void bench_forget_peak();
std::int64_t bench_peak_bytes();
}
