// SPDX-License-Identifier: MIT
// Defines the error that export_model throws for a model that cannot be exported.
#pragma once

#include <looptorch/base/error.hpp>

#include <string>
#include <utility>

namespace looptorch {

/// Thrown for a model that cannot be exported. The message names the operator and its argument, if one is at
/// fault. No file was written, and the model is as before.
struct ExportError : Error {
  explicit ExportError(const std::string& what) : Error("export_model: " + what) {}
  ExportError(std::string operator_name_, std::string argument_, const std::string& what)
      : Error("export_model: " + operator_name_ +
              (argument_.empty() || operator_name_.empty() ? "" : ", argument ") + argument_ + ": " + what),
        operator_name(std::move(operator_name_)),
        argument(std::move(argument_)) {}

  std::string operator_name;  ///< such as "aten::add.Tensor"; empty if no single one is at fault
  std::string argument;       ///< as the operator's schema calls it; empty if no single one is at fault
};

}  // namespace looptorch
