// SPDX-License-Identifier: MIT
// The bytes that CPU tensors take, as counting_allocator.cpp counts them. C linkage, for Python's ctypes.
#pragma once

#include <cstdint>

extern "C" {
/// Of all tensors that are alive.
std::int64_t bench_live_bytes();
/// The peak is now what is alive.
void bench_forget_peak();
std::int64_t bench_peak_bytes();
}
