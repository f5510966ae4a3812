// SPDX-License-Identifier: MIT
// Defines the error for a .pt2 that cannot be read or trained.
#pragma once

#include <looptorch/base/error.hpp>

#include <string>
#include <utility>

namespace looptorch {

/// Thrown for a damaged archive of torch.export, and for a program that needs unsupported features. The
/// message names the file and, if there is one, the operator and its node.
struct ExportedModelError : Error {
  explicit ExportedModelError(const std::string& what, std::string operator_name_ = {})
      : Error(what), operator_name(std::move(operator_name_)) {}

  std::string operator_name;  ///< as in the file, "torch.ops.aten.add.Tensor"; empty if none is at fault
};

}  // namespace looptorch
