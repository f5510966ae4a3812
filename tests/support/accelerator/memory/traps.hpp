// SPDX-License-Identifier: MIT
// Pages of pinned memory that the host may not touch before a copy to them is over. A touch is noted, and
// goes on: it finds NaN. A host that touches a device's memory is shown the stack, and dies as it would with
// CUDA.
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
