// SPDX-License-Identifier: MIT
// Saves a module's weights in a safetensors file that Python's `safetensors` and transformers read, and
// load_weights.hpp reads back. Costs one copy of each tensor to the CPU, one at a time, and an fsync.
#pragma once

#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/tied_tensors.hpp>

#include <filesystem>

namespace looptorch {

/// Writes a Module's or ModuleHolder's parameters and buffers by their full names, in one step: a reader
/// finds the old file or the new. As by Python's `safetensors.torch.save_model`, tied weights are written
/// once, under the first of their names, and the metadata map each other name to it; load_weights and
/// `load_model` restore all of them. The metadata also get {"format", "pt"}, which transformers expects. A
/// key that `metadata` has already keeps its value. Throws FileError. Throws SafetensorsError, which names
/// the tensor, for one that the format cannot hold and for two that overlap without being the same. Then the
/// target is unchanged.
template <class Module>
void save_weights(const Module& module, const std::filesystem::path& path,
                  SafetensorsMetadata metadata = {}) {
  auto tensors = state_dict(module);
  for (const auto& [name, kept] : find_tied_names(tensors)) {
    tensors.erase(name);
    metadata.emplace(name, kept);
  }
  metadata.emplace("format", "pt");
  save_safetensors(path, tensors, metadata);
}

}  // namespace looptorch
