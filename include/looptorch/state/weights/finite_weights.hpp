// SPDX-License-Identifier: MIT
// Refuses weights that are NaN or infinite, which a diverged training or a damaged file leaves. Programs call
// it after they load a model, which would otherwise compute NaN, or produce no text, without an error. Costs
// one sum per tensor, a tenth of a copy's time.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/state/weights/module_tensors.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <string>

namespace looptorch {
namespace detail {

/// True if all elements are finite. A finite sum shows it without a temporary tensor.
[[nodiscard]] inline bool is_finite(const at::Tensor& tensor) {
  const auto wide = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return std::isfinite(tensor.sum(wide).item<double>()) || tensor.isfinite().all().item<bool>();
}

}  // namespace detail

/// Throws StateError, which names `where`, such as the weights' file, and the first tensor at fault, if a
/// parameter or a buffer holds NaN or infinity. Not for a model with a mask of infinities among its buffers.
template <class Module>
void require_finite_weights(const Module& module, const std::string& where) {
  for (const auto& [name, tensor] : state_dict(module))
    if (tensor.is_floating_point() && !detail::is_finite(tensor.detach()))
      throw StateError(message(where, ": the weights \"", name, "\" hold NaN or infinity"));
}

}  // namespace looptorch
