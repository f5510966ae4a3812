// SPDX-License-Identifier: MIT
// TensorMap, tensors by name: weights on their way to a module or a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

namespace looptorch {

/// Tensors by name, in the order of their names.
using TensorMap = std::map<std::string, at::Tensor, std::less<>>;

}  // namespace looptorch
