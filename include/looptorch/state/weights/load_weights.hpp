// SPDX-License-Identifier: MIT
// Loads weights from a file into a module, whole or in part, and renamed if need be. Changes the module only
// if everything that is asked for fits. Costs one copy of what is loaded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors_index.hpp>
#include <looptorch/state/weights/wrapped_names.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Selects and renames the tensors of the file. By default names must be the module's, apart from parts that
/// Python's wrappers add ("module.", "_orig_mod." and the like) and "model." in front of either name. A name
/// that differs in these parts matches the only tensor of the module that has the same name without them,
/// unless the file also has that tensor's exact name.
struct LoadWeightsOptions {
  /// Tensors of the module that the file lacks keep their values.
  bool allow_missing = false;
  /// Tensors of the file that the module lacks are skipped.
  bool allow_surplus = false;
  /// Maps a name in the file, without `prefix`, to a name in the module. An empty result leaves the tensor
  /// out. If the result is no name of the module, names without wrappers are tried.
  std::function<std::string(const std::string&)> rename{};
  /// Only names with this prefix are loaded, and lose it: "model.encoder." loads an encoder alone.
  std::string prefix{};
  /// The key of a checkpoint of torch.save under which the weights are, as "generator"; empty: found as
  /// load_torch_checkpoint finds them.
  std::string inside{};
};

/// Loads a safetensors file, one of torch.save, an index, or a folder (see load_safetensors_any) into a
/// Module or ModuleHolder: parameters and buffers, on its devices and in its dtypes. For names that share one
/// tensor in the module, as tied weights do, one in the file is enough; two must agree. Returns a report of
/// what was loaded, under which names, and what was allowed to be missing or surplus. Throws FileError,
/// SafetensorsError and TorchCheckpointError for the file. Throws ModuleStateError, with the report, for what
/// does not fit, or if nothing at all does. Throws UsageError if two tensors are renamed to one.
template <class Module>
LoadReport load_weights(const Module& module, const std::filesystem::path& path,
                        const LoadWeightsOptions& options = {});

/// Loads tensors that were read before into a module. Errors call their source `where`, and `inside` is
/// ignored.
template <class Module>
LoadReport load_weights(const Module& module, const TensorMap& tensors, const std::string& where,
                        const LoadWeightsOptions& options = {});

namespace detail {

/// The tensors of a file by the module's names; those for which it has no place, by the file's names.
struct NamedTensors {
  TensorMap tensors;
  std::vector<RenamedTensor> renamed;
};

/// Returns for each name in the file the part after the prefix. If no name has the prefix, compares both
/// without wrappers.
inline std::map<std::string, std::string> names_behind(const std::string& prefix, const TensorMap& tensors) {
  std::map<std::string, std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) names.emplace(name, name.substr(prefix.size()));
  if (!names.empty()) return names;
  for (const auto& [name, tensor] : tensors)
    for (const auto& shorter : shorter_names(name))
      for (const auto& shorter_prefix : shorter_names(prefix))
        if (!shorter_prefix.empty() && shorter.starts_with(shorter_prefix))
          names.emplace(name, shorter.substr(shorter_prefix.size()));
  return names;
}

class FileNames {
 public:
  FileNames(const TensorMap& own, const TensorMap& tensors, const LoadWeightsOptions& options)
      : own_(own),
        tensors_(tensors),
        behind_(names_behind(options.prefix, tensors)),
        rename_(options.rename) {
    if (!rename_) rename_ = [](const std::string& name) { return name; };
  }

  [[nodiscard]] NamedTensors match() {
    std::vector<std::string> others;  // names in the file that are not the module's
    for (const auto& [name, behind] : behind_) {
      auto target = rename_(behind);
      if (own_.contains(target))
        take(name, target);
      else
        others.push_back(name);
    }
    for (const auto& [target, names] : without_wrappers(others)) {
      const bool fits = names.size() == 1 && !target.empty();
      for (const auto& name : names) {
        const auto as_is = rename_(behind_.at(name));
        if (fits) named_.renamed.push_back({name, target});
        if (fits || !as_is.empty()) take(name, fits ? target : as_is);
      }
    }
    return std::move(named_);
  }

 private:
  /// Returns names in the file, by the module's name that they match, or by "" if they match none.
  [[nodiscard]] std::map<std::string, std::vector<std::string>> without_wrappers(
      const std::vector<std::string>& names) const {
    const WrappedNames wrapped(own_, [&](const std::string& name) { return sources_.contains(name); });
    std::map<std::string, std::vector<std::string>> by_target;
    for (const auto& name : names) by_target[wrapped.find(behind_.at(name), rename_)].push_back(name);
    return by_target;
  }

  void take(const std::string& name, const std::string& target) {
    const auto [source, is_new] = sources_.emplace(target, name);
    if (!is_new)
      throw UsageError(message("load_weights: both \"", source->second, "\" and \"", name,
                               "\" would be loaded as \"", target, "\""));
    named_.tensors.emplace(target, tensors_.at(name));
  }

  const TensorMap& own_;
  const TensorMap& tensors_;
  std::map<std::string, std::string> behind_;
  std::function<std::string(const std::string&)> rename_;
  std::map<std::string, std::string> sources_;  ///< names in the file by the module's
  NamedTensors named_;
};

inline std::string find_faults(const LoadReport& report, const TensorMap& own,
                               const LoadWeightsOptions& options) {
  auto faults = describe_faults(report, {options.allow_missing, options.allow_surplus});
  if (faults.empty() && report.loaded.empty() && !own.empty()) {
    faults = message("; no tensor of the file",
                     options.prefix.empty() ? "" : " after \"" + options.prefix + '"', " has a place in it");
  }
  return faults;
}

}  // namespace detail

template <class Module>
LoadReport load_weights(const Module& module, const TensorMap& tensors, const std::string& where,
                        const LoadWeightsOptions& options) {
  const auto own = state_dict(module);
  auto [given, renamed] = detail::FileNames(own, tensors, options).match();
  auto report = detail::compare_state(own, given);
  report.renamed = std::move(renamed);
  if (const auto faults = detail::find_faults(report, own, options); !faults.empty())
    throw ModuleStateError(message(where, ": the weights do not fit the module", faults), std::move(report));
  detail::copy_state(own, given);
  return report;
}

template <class Module>
LoadReport load_weights(const Module& module, const std::filesystem::path& path,
                        const LoadWeightsOptions& options) {
  std::string inside = options.inside;
  const auto file = detail::load_any_weights(path, {}, inside);
  try {
    auto report = load_weights(module, file.tensors, path.string(), options);
    report.inside = std::move(inside);
    return report;
  } catch (ModuleStateError& error) {
    error.report.inside = std::move(inside);
    throw;
  }
}

}  // namespace looptorch
