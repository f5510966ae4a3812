// SPDX-License-Identifier: MIT
// Defines TensorMap, a map from names to tensors. Weights are held in it between a module and a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

namespace looptorch {

/// Tensors by name, in the order of their names.
using TensorMap = std::map<std::string, at::Tensor, std::less<>>;

}  // namespace looptorch
