// SPDX-License-Identifier: MIT
// Loading in two passes: all that can be refused is refused before anything is touched.
#pragma once

#include <functional>

namespace looptorch::detail {

/// A step of loading that has been checked and only has to be made.
using Commit = std::function<void()>;

}  // namespace looptorch::detail
