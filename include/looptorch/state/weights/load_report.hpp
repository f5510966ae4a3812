// SPDX-License-Identifier: MIT
// Defines LoadReport, which lists by name how given tensors fit a module: those that were loaded, those that
// are missing or surplus, and those of another shape or type. load_weights returns one, and a
// ModuleStateError carries one. Include module_state.hpp or load_weights.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/base/text/near_names.hpp>
#include <looptorch/state/weights/tied_tensors.hpp>
#include <looptorch/state/weights/wrapped_names.hpp>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A tensor whose name the module has, but whose shape, type or value does not fit.
struct UnfitTensor {
  std::string name;
  std::string why;  ///< "[5] instead of [2]"
};

/// The outcome for each name. Each list is in the order of the names.
struct LoadReport {
  std::vector<std::string> loaded;   ///< Names of the module.
  std::vector<std::string> missing;  ///< Names of the module for which nothing was given.
  std::vector<std::string> surplus;  ///< Given names that the module does not have.
  /// Tensors of another shape, of a type that cannot be converted, or with another value than was given under
  /// a second name of the same tensor.
  std::vector<UnfitTensor> unfit;
  /// Names in the file that wrappers of Python have changed, and the module's names that they were read as.
  std::vector<RenamedTensor> renamed{};
  std::string inside{};  ///< The key of a checkpoint under which the weights were, as "model_state_dict".

  /// Returns one line: "5 loaded; renamed: 5 with "module." in front; 1 missing: fc.bias (near: fc.bais)".
  /// Long lists are shortened.
  [[nodiscard]] std::string text() const;

  /// Returns the part of `text` on renamed tensors, "; renamed: 5 with "module." in front"; empty if none
  /// were.
  [[nodiscard]] std::string renamed_text() const;
};

/// Thrown for weights that do not fit the module; nothing was changed. `report` lists what is wrong, and in
/// `loaded` the names that would have fitted.
struct ModuleStateError : Error {
  explicit ModuleStateError(const std::string& what, LoadReport how = {})
      : Error(what), report(std::move(how)) {}
  LoadReport report;
};

namespace detail {

/// Returns "; 9 missing: a, b, ..., and 1 more", each name by `describe`. Empty for an empty list.
template <class Names, class Describe>
[[nodiscard]] std::string list_names(const Names& names, const char* kind, Describe describe) {
  constexpr std::size_t kNamed = 8;
  if (names.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + describe(names[i]);
  }
  if (names.size() > kNamed) text += message(", and ", names.size() - kNamed, " more");
  return message("; ", names.size(), " ", kind, ": ", text);
}

[[nodiscard]] inline std::string describe_missing(const std::string& name,
                                                  const std::vector<std::string>& surplus) {
  std::string text;
  for (const auto& near : near_names(name, surplus)) text += (text.empty() ? "" : ", ") + near;
  return text.empty() ? name : message(name, " (near: ", text, ")");
}

/// Faults that are allowed.
struct Leniency {
  bool missing = false, surplus = false;
};

[[nodiscard]] inline std::string describe_faults(const LoadReport& report, Leniency allow = {}) {
  const auto missing = [&](const std::string& name) { return describe_missing(name, report.surplus); };
  const auto as_is = [](const std::string& name) { return name; };
  const auto unfit = [](const UnfitTensor& tensor) { return tensor.name + " " + tensor.why; };
  return (allow.missing ? "" : list_names(report.missing, "missing", missing)) +
         (allow.surplus ? "" : list_names(report.surplus, "surplus", as_is)) +
         list_names(report.unfit, "unfit", unfit);
}

[[nodiscard]] inline bool can_convert(at::ScalarType from, at::ScalarType to) {
  const bool is_packed = from == kFloat4 || to == kFloat4;
  const bool is_quantised = at::isQIntType(from) || at::isQIntType(to);
  return from == to || (c10::canCast(from, to) && !is_packed && !is_quantised);
}

/// Returns why `own` cannot be written or `given` cannot be read; empty if both can be copied.
[[nodiscard]] inline std::string find_obstacle(const at::Tensor& own, const at::Tensor& given) {
  if (!given.defined()) return "undefined";
  if (own.layout() != at::kStrided || given.layout() != at::kStrided) {
    return message(given.layout(), " into ", own.layout());
  }
  if (own.is_meta()) return "into a tensor without memory (meta device)";
  if (given.is_meta()) return "from a tensor without memory (meta device)";
  if (own.is_inference() && !c10::InferenceMode::is_enabled()) return "into a tensor of inference mode";
  if (at::has_internal_overlap(own) == at::MemOverlap::Yes) return "into a tensor that overlaps itself";
  if (at::get_overlap_status(own, given) == at::MemOverlapStatus::Partial) return "from a part of itself";
  return {};
}

/// Returns why `given` cannot be copied to `own`; empty if it can.
[[nodiscard]] inline std::string find_misfit(const at::Tensor& own, const at::Tensor& given) {
  if (auto obstacle = find_obstacle(own, given); !obstacle.empty()) return obstacle;
  if (given.sizes() != own.sizes()) return message(given.sizes(), " instead of ", own.sizes());
  if (!can_convert(given.scalar_type(), own.scalar_type())) {
    return message(given.scalar_type(), " instead of ", own.scalar_type());
  }
  return {};
}

/// True if copying either tensor leaves the same bytes in `own`, NaN included.
[[nodiscard]] inline bool fill_alike(const at::Tensor& own, const at::Tensor& a, const at::Tensor& b) {
  if (identity_of(a) == identity_of(b)) return true;
  const c10::NoGradGuard no_grad;
  const auto bytes = [&](const at::Tensor& tensor) {
    return tensor.to(own.options()).resolve_conj().resolve_neg().flatten().view(at::kByte);
  };
  return at::equal(bytes(a), bytes(b));
}

/// Sorts the names that were not given: into `loaded` if another name of the same tensor was given, as for
/// tied weights, else into `missing`.
inline void split_missing(const TensorMap& own, const TensorMap& given, LoadReport& report) {
  std::set<TensorIdentity> filled;
  for (const auto& [name, tensor] : own) {
    if (given.contains(name)) filled.insert(identity_of(tensor));
  }
  for (const auto& [name, tensor] : own) {
    if (given.contains(name)) continue;
    (filled.contains(identity_of(tensor)) ? report.loaded : report.missing).push_back(name);
  }
}

/// Remembers which values were first given for each tensor of a module: tied weights may be given twice.
class FirstGiven {
 public:
  /// Returns why `given` contradicts values that were given under another name of `own`; empty if not.
  [[nodiscard]] std::string find_contradiction(const std::string& name, const at::Tensor& own,
                                               const at::Tensor& given) {
    const auto [first, is_new] = first_.emplace(identity_of(own), Given{name, given});
    if (is_new || fill_alike(own, first->second.tensor, given)) return {};
    return message("other values than ", first->second.name, ", to which it is tied");
  }

 private:
  struct Given {
    std::string name;
    at::Tensor tensor;
  };

  std::map<TensorIdentity, Given> first_;
};

[[nodiscard]] inline LoadReport compare_state(const TensorMap& own, const TensorMap& given) {
  LoadReport report;
  FirstGiven first;
  split_missing(own, given, report);
  for (const auto& [name, tensor] : given) {
    const auto target = own.find(name);
    if (target == own.end()) {
      report.surplus.push_back(name);
      continue;
    }
    auto why = find_misfit(target->second, tensor);
    if (why.empty()) why = first.find_contradiction(name, target->second, tensor);
    if (!why.empty()) {
      report.unfit.push_back({name, std::move(why)});
    } else {
      report.loaded.push_back(name);
    }
  }
  std::sort(report.loaded.begin(), report.loaded.end());
  return report;
}

}  // namespace detail

inline std::string LoadReport::renamed_text() const {
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const auto& tensor : renamed) ++counts[detail::changed_beginning(tensor)];
  std::vector<std::string> changes;
  for (const auto& [change, count] : counts) {
    const auto& [from, to] = change;
    changes.push_back(to.empty()     ? message(count, " with \"", from, "\" in front")
                      : from.empty() ? message(count, " without \"", to, "\" in front")
                                     : message(count, " with \"", from, "\" for \"", to, "\""));
  }
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, changes.size()); ++i)
    text += (i == 0 ? "; renamed: " : ", ") + changes[i];
  return text + (changes.size() > kNamed ? ", ..." : "");
}

inline std::string LoadReport::text() const {
  return message(loaded.size(), " loaded", inside.empty() ? "" : " from \"" + inside + '"', renamed_text(),
                 detail::describe_faults(*this));
}

}  // namespace looptorch
