// SPDX-License-Identifier: MIT
// Detects accesses of the host to memory that it may not read yet, or not at all. Pinned memory is protected
// until a copy to it is over: an access is counted, and finds NaN. An access to a device's memory prints the
// stack and ends the program, as with CUDA.
#pragma once

#include <cstddef>

namespace looptorch_test::accelerator {

/// Protects the pages that lie wholly in [begin, end) and returns the trap's number, or -1 for no page.
/// Memory up to `end_of_block` belongs to the same tensor's block, so that its last page counts as whole.
int set_trap(char* begin, char* end, const char* end_of_block);
void release_trap(int number);

/// Returns how many traps the host touched since the last call.
[[nodiscard]] int take_touches();

}  // namespace looptorch_test::accelerator
