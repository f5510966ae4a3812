// SPDX-License-Identifier: MIT
// Finds names that share one tensor, such as those of a language model's embedding and output layer. Costs a
// map of all tensors. Include save_weights.hpp or load_weights.hpp instead.
#pragma once

#include <looptorch/base/tensors/tensor_map.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace looptorch {

/// Maps each further name of a tensor to the name under which it is kept.
using TiedNames = std::map<std::string, std::string>;

/// Returns the tied names. Of several names for the same elements of the same memory the first is kept.
/// Tensors that merely overlap are not tied.
[[nodiscard]] TiedNames find_tied_names(const TensorMap& tensors);

namespace detail {

/// Equal for two tensors if, and only if, they are the same values in the same memory.
struct TensorIdentity {
  const void* memory;
  at::DeviceType device;
  at::ScalarType type;
  bool is_conj, is_neg;
  std::vector<std::int64_t> sizes, strides;

  friend auto operator<=>(const TensorIdentity&, const TensorIdentity&) = default;
};

/// Returns the tensor's identity. A tensor without memory is identical only to itself.
[[nodiscard]] inline TensorIdentity identity_of(const at::Tensor& tensor) {
  const bool has_memory = tensor.defined() && tensor.has_storage() && !tensor.is_meta() && tensor.numel() > 0;
  if (!tensor.defined()) return {nullptr, at::kCPU, at::ScalarType::Undefined, false, false, {}, {}};
  if (!has_memory) {
    return {tensor.unsafeGetTensorImpl(), tensor.device().type(), tensor.scalar_type(), false, false, {}, {}};
  }
  return {tensor.const_data_ptr(), tensor.device().type(), tensor.scalar_type(),  tensor.is_conj(),
          tensor.is_neg(),         tensor.sizes().vec(),   tensor.strides().vec()};
}

}  // namespace detail

inline TiedNames find_tied_names(const TensorMap& tensors) {
  TiedNames tied;
  std::map<detail::TensorIdentity, const std::string*> kept;
  for (const auto& [name, tensor] : tensors) {
    const auto [first, is_new] = kept.emplace(detail::identity_of(tensor), &name);
    if (!is_new) tied.emplace(name, *first->second);
  }
  return tied;
}

}  // namespace looptorch
