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

#include <filesystem>
#include <optional>
#include <utility>

namespace looptorch {

/// Converts the floating-point tensors to `dtype`, as to at::kHalf for a file of half the size. Throws
/// UsageError for another kind of dtype, and for a finite value that it cannot hold, by the tensor's name;
/// then `tensors` is unchanged.
void convert_floating_point(TensorMap& tensors, at::ScalarType dtype);

/// Writes a Module's or ModuleHolder's parameters and buffers by their full names, in one step: a reader
/// finds the old file or the new. As by Python's `safetensors.torch.save_model`, tied weights are written
/// once, under the first of their names, and the metadata map each other name to it; load_weights and
/// `load_model` restore all of them. The metadata also get {"format", "pt"}, which transformers expects. A
/// key that `metadata` has already keeps its value. With `dtype` the file has what convert_floating_point
/// returns, which stands beside the module meanwhile; load_weights converts it back. Throws FileError. Throws
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
  if (dtype) {
    detail::check_sharing(path, tensors);  // copies share nothing
    convert_floating_point(tensors, *dtype);
  }
  save_safetensors(path, tensors, metadata);
}

inline void convert_floating_point(TensorMap& tensors, at::ScalarType dtype) {
  if (!at::isFloatingType(dtype))
    throw UsageError(message("convert_floating_point: ", dtype, " is not a floating-point type"));
  TensorMap converted;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == dtype) continue;
    const auto values = tensor.detach(), rounded = values.to(dtype);
    const auto lost = at::isfinite(values).logical_and_(at::isfinite(rounded.to(values.scalar_type())).logical_not_());
    if (lost.any().item<bool>())
      throw UsageError(message("convert_floating_point: tensor \"", name, "\" has a value that ", dtype,
                               " cannot hold"));
    converted.emplace(name, rounded);
  }
  for (auto& [name, tensor] : converted) tensors.find(name)->second = std::move(tensor);
}

}  // namespace looptorch
