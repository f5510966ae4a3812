// SPDX-License-Identifier: MIT
// Loads weights from a file into a module, whole or in part, under other names if need be. All or nothing:
// the module is not touched unless everything that is asked for fits. Costs one copy of what is loaded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors_index.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// Selects and renames the tensors of the file. By default the names must be exactly the module's.
struct LoadWeightsOptions {
  /// Tensors of the module that the file lacks keep their values.
  bool allow_missing = false;
  /// Tensors of the file that the module lacks are passed over.
  bool allow_surplus = false;
  /// Maps a name in the file, without `prefix`, to a name in the module. An empty result leaves the tensor
  /// out.
  std::function<std::string(const std::string&)> rename{};
  /// Only names with this prefix are loaded, and lose it: "model.encoder." loads an encoder alone.
  std::string prefix{};
};

/// Loads a safetensors file, an index, or a folder (see load_safetensors_any) into a Module or ModuleHolder:
/// parameters and buffers, on its devices and in its dtypes. For names that share one tensor in the module,
/// as tied weights do, one in the file is enough; two must agree. Returns a report of what was loaded and
/// what was allowed to be missing or surplus. Throws FileError and SafetensorsError for the file. Throws
/// ModuleStateError, with the report, for what does not fit, or if nothing at all does. Throws UsageError if
/// two tensors are renamed to one.
template <class Module>
LoadReport load_weights(const Module& module, const std::filesystem::path& path,
                        const LoadWeightsOptions& options = {});

namespace detail {

/// Returns the name of a file's tensor in the module; empty if it is left out.
inline std::string name_in_module(const std::string& name, const LoadWeightsOptions& options) {
  if (!std::string_view(name).starts_with(options.prefix)) return {};
  auto shorter = name.substr(options.prefix.size());
  return options.rename ? options.rename(shorter) : shorter;
}

inline TensorMap rename_tensors(const TensorMap& tensors, const LoadWeightsOptions& options) {
  TensorMap renamed;
  std::map<std::string, std::string> sources;
  for (const auto& [name, tensor] : tensors) {
    auto target = name_in_module(name, options);
    if (target.empty()) continue;
    const auto [source, is_new] = sources.emplace(target, name);
    if (!is_new) {
      throw UsageError(message("load_weights: both \"", source->second, "\" and \"", name,
                               "\" would be loaded as \"", target, "\""));
    }
    renamed.emplace(std::move(target), tensor);
  }
  return renamed;
}

inline std::string find_faults(const LoadReport& report, const TensorMap& own,
                               const LoadWeightsOptions& options) {
  auto faults = describe_faults(report, {options.allow_missing, options.allow_surplus});
  if (faults.empty() && report.loaded.empty() && !own.empty()) {
    faults = message("; no tensor of the file",
                     options.prefix.empty() ? "" : " behind \"" + options.prefix + '"', " has a place in it");
  }
  return faults;
}

}  // namespace detail

template <class Module>
LoadReport load_weights(const Module& module, const std::filesystem::path& path,
                        const LoadWeightsOptions& options) {
  const auto own = state_dict(module);
  const auto given = detail::rename_tensors(load_safetensors_any(path).tensors, options);
  auto report = detail::compare_state(own, given);
  if (const auto faults = detail::find_faults(report, own, options); !faults.empty()) {
    throw ModuleStateError(message(path.string(), ": the weights do not fit the module", faults),
                           std::move(report));
  }
  detail::copy_state(own, given);
  return report;
}

}  // namespace looptorch
