// SPDX-License-Identifier: MIT
// Saves a module's weights in a safetensors file that Python's `safetensors` and transformers read, and
// load_weights.hpp reads back. Costs one copy of each tensor to the CPU, one at a time, and an fsync.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/tied_tensors.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace looptorch {

/// Converts the floating-point tensors to `dtype`, as to at::kHalf for a file of half the size. Throws
/// UsageError for another kind of dtype, and for a finite value that it cannot hold, by the tensor's name;
/// then `tensors` is unchanged.
void convert_floating_point(TensorMap& tensors, at::ScalarType dtype);

namespace detail {

inline void require_floating_point(at::ScalarType dtype) {
  if (!at::isFloatingType(dtype))
    throw UsageError(message("convert_floating_point: ", dtype, " is not a floating-point type"));
}

/// Returns the tensor in `dtype` if it is of floating-point values, else unchanged. Beside the result it
/// makes no copy of more than some MB.
inline at::Tensor converted(const std::string& name, const at::Tensor& tensor, at::ScalarType dtype) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == dtype) return tensor;
  const at::Tensor values = tensor.detach(), rounded = values.to(dtype);
  if (dtype == at::kDouble || (dtype == at::kFloat && tensor.scalar_type() != at::kDouble)) return rounded;
  constexpr std::int64_t kNumbers = 1 << 20;
  const at::Tensor flat = values.contiguous().view({-1}), flat_rounded = rounded.contiguous().view({-1});
  for (std::int64_t at = 0; at < flat.numel(); at += kNumbers) {
    const std::int64_t count = std::min(kNumbers, flat.numel() - at);
    const at::Tensor before = flat.narrow(0, at, count), after = flat_rounded.narrow(0, at, count);
    const at::Tensor fits = at::isfinite(after.to(before.scalar_type()));
    if (at::isfinite(before).logical_and_(fits.logical_not()).any().item<bool>())
      throw UsageError(message("convert_floating_point: tensor \"", name, "\" has a value that ", dtype,
                               " cannot hold"));
  }
  return rounded;
}

}  // namespace detail

/// Writes a Module's or ModuleHolder's parameters and buffers by their full names, in one step: a reader
/// finds the old file or the new. As by Python's `safetensors.torch.save_model`, tied weights are written
/// once, under the first of their names, and the metadata map each other name to it; load_weights and
/// `load_model` restore all of them. The metadata also get {"format", "pt"}, which transformers expects. A
/// key that `metadata` has already keeps its value. With `dtype` the file has what convert_floating_point
/// returns, made of one tensor at a time; load_weights converts it back. Throws FileError. Throws
/// SafetensorsError, which names the tensor, for one that the format cannot hold and for two that overlap
/// without being the same. Throws what convert_floating_point throws. Then the target is unchanged.
template <class Module>
void save_weights(const Module& module, const std::filesystem::path& path, SafetensorsMetadata metadata = {},
                  std::optional<at::ScalarType> dtype = std::nullopt) {
  auto tensors = state_dict(module);
  for (const auto& [name, kept] : find_tied_names(tensors)) {
    tensors.erase(name);
    metadata.emplace(name, kept);
  }
  metadata.emplace("format", "pt");
  if (!dtype) return save_safetensors(path, tensors, metadata);
  detail::require_floating_point(*dtype);
  detail::save_converted(path, tensors, metadata, dtype, [&](const auto& name, const at::Tensor& tensor) {
    return detail::converted(name, tensor, *dtype);
  });
}

inline void convert_floating_point(TensorMap& tensors, at::ScalarType dtype) {
  detail::require_floating_point(dtype);
  TensorMap changed;
  for (const auto& [name, tensor] : tensors)
    if (at::Tensor other = detail::converted(name, tensor, dtype); !other.is_same(tensor))
      changed.emplace(name, std::move(other));
  for (auto& [name, tensor] : changed) tensors.find(name)->second = std::move(tensor);
}

}  // namespace looptorch
