// SPDX-License-Identifier: MIT
// What is thrown about manifests; see manifest.hpp.
#pragma once

#include <looptorch/error.hpp>

namespace looptorch {

/// A manifest that cannot be used; the message begins with the file, and the line where there is one.
struct ManifestError : Error {
  using Error::Error;
};

}  // namespace looptorch
