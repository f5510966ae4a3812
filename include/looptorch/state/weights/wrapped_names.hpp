// SPDX-License-Identifier: MIT
// Matches names that Python's wrappers have changed: DataParallel and DDP add "module."; torch.compile adds
// "_orig_mod."; FSDP and checkpoint_wrapper add their own. transformers writes the prefix "model." if a model
// was saved with its head. Include load_weights.hpp instead.
#pragma once

#include <looptorch/base/tensors/tensor_map.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// A tensor that was loaded under another name than its file has.
struct RenamedTensor {
  std::string from;  ///< in the file
  std::string to;    ///< in the module
};

namespace detail {

/// Returns the name without the parts that wrappers add anywhere: "module", "_orig_mod" and those of FSDP and
/// checkpoint_wrapper.
[[nodiscard]] inline std::string unwrapped_name(std::string_view name) {
  constexpr std::string_view kWrappers[] = {"module", "_orig_mod", "_fsdp_wrapped_module",
                                            "_checkpoint_wrapped_module"};
  std::string out;
  for (;;) {
    const auto dot = name.find('.');
    const auto part = name.substr(0, dot);
    if (dot == name.npos) return out.append(name);
    if (std::find(std::begin(kWrappers), std::end(kWrappers), part) == std::end(kWrappers))
      out.append(part) += '.';
    name.remove_prefix(dot + 1);
  }
}

/// Returns the unwrapped name, and the same without each "model." in front.
[[nodiscard]] inline std::vector<std::string> shorter_names(std::string_view name) {
  constexpr std::string_view kModel = "model.";
  std::vector<std::string> names{unwrapped_name(name)};
  while (names.back().starts_with(kModel)) names.push_back(names.back().substr(kModel.size()));
  return names;
}

/// Finds a module's name for a name in a file, by comparing both without wrappers.
class WrappedNames {
 public:
  using Rename = std::function<std::string(const std::string&)>;

  /// `is_given` tells which of `own` the file has unchanged.
  WrappedNames(const TensorMap& own, const std::function<bool(const std::string&)>& is_given) {
    for (const auto& [name, tensor] : own) {
      const auto shorter = shorter_names(name);
      if (is_given(name))
        given_parts_.insert(first_part(shorter.back()));
      else
        by_unwrapped_[shorter.front()].push_back(name), by_core_[shorter.back()].push_back(name);
    }
  }

  /// Returns the name of the module's only tensor that matches the file's `name`; empty if there is none.
  /// `rename` maps names of the file to names of the module. Ignores "model." only in parts of the model,
  /// such as "encoder", of which the file has no tensor under its own name.
  [[nodiscard]] std::string find(const std::string& name, const Rename& rename) const {
    const auto shorter = shorter_names(name);
    if (const auto target = only(by_unwrapped_, unwrapped_name(rename(shorter.front()))); !target.empty())
      return target;
    for (const auto& candidate : shorter) {
      const auto core = shorter_names(rename(candidate)).back();
      if (given_parts_.contains(first_part(core))) continue;
      if (const auto target = only(by_core_, core); !target.empty()) return target;
    }
    return {};
  }

 private:
  using Names = std::map<std::string, std::vector<std::string>>;

  [[nodiscard]] static std::string first_part(const std::string& name) {
    return name.substr(0, name.find('.'));
  }

  [[nodiscard]] static std::string only(const Names& names, const std::string& key) {
    const auto found = names.find(key);
    return found == names.end() || found->second.size() != 1 ? std::string() : found->second.front();
  }

  Names by_unwrapped_, by_core_;       ///< the module's names that the file does not have
  std::set<std::string> given_parts_;  ///< of the model, with tensors that the file has under their own names
};

/// Returns how one name became the other, without the end that they share: {"module.", ""}.
[[nodiscard]] inline std::pair<std::string, std::string> changed_beginning(const RenamedTensor& tensor) {
  const std::string_view from = tensor.from, to = tensor.to;
  std::size_t shared = 0;  // after a dot in both, or a whole name
  for (std::size_t size = 1; size <= std::min(from.size(), to.size()); ++size) {
    if (from[from.size() - size] != to[to.size() - size]) break;
    const auto begins = [size](std::string_view name) {
      return size == name.size() || name[name.size() - size - 1] == '.';
    };
    if (begins(from) && begins(to)) shared = size;
  }
  return {std::string(from.substr(0, from.size() - shared)), std::string(to.substr(0, to.size() - shared))};
}

}  // namespace detail
}  // namespace looptorch
