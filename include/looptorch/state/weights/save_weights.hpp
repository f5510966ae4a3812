// SPDX-License-Identifier: MIT
// A module's weights into a safetensors file that Python's `safetensors` and transformers read as it is: what
// load_weights.hpp reads back. Costs one copy of each tensor to the CPU, one at a time, and an fsync.
#pragma once

#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/state/weights/tied_tensors.hpp>

#include <filesystem>

namespace looptorch {

/// Writes a Module's or ModuleHolder's parameters and buffers by their full names, in one step: a reader
/// finds the old file or the new. As by Python's `safetensors.torch.save_model`, tied weights are written
/// once, under the first of their names, and the metadata has that name by each of the others; load_weights
/// and `load_model` restore all of them. The metadata also say {"format", "pt"}, as transformers wants it;
/// what `metadata` has under such a key stays. Throws FileError, and SafetensorsError, which names the
/// tensor, for one that the format cannot hold and for two that overlap without being the same; then the
/// target is as it was.
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
