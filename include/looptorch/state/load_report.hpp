// SPDX-License-Identifier: MIT
// How given tensors fit those that are expected, name by name, and the error that says so. Include
// module_state.hpp or load_weights.hpp.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/near_names.hpp>
#include <looptorch/state/safetensors_layout.hpp>
#include <looptorch/state/tied_tensors.hpp>

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// A tensor that has a place by its name, and does not fit there.
struct UnfitTensor {
  std::string name;
  std::string why;  ///< "[5] instead of [2]"
};

/// What became of each name; each list is in the order of the names.
struct LoadReport {
  std::vector<std::string> loaded;   ///< Names of the module.
  std::vector<std::string> missing;  ///< The module has them, and nothing was given.
  std::vector<std::string> surplus;  ///< They were given, and the module has no place for them.
  std::vector<UnfitTensor> unfit;    ///< Of another shape, or of a kind that cannot be converted.

  /// One line: "5 loaded; 1 missing: fc.bias (near: fc.bais)". Long lists are cut.
  [[nodiscard]] std::string text() const;
};

/// Weights that are not this module's. What they lack stands in `report`; its `loaded` are those that would
/// have fitted, nothing was changed.
struct ModuleStateError : Error {
  explicit ModuleStateError(const std::string& what, LoadReport how = {})
      : Error(what), report(std::move(how)) {}
  LoadReport report;
};

namespace detail {

/// "; 9 missing: a, b, ..., and 1 more", each name by `describe`; nothing for an empty list.
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

/// Faults that may be let pass.
struct Leniency {
  bool missing = false, surplus = false;
};

[[nodiscard]] inline std::string describe_faults(const LoadReport& report, Leniency allow = {}) {
  const auto missing = [&](const std::string& name) { return describe_missing(name, report.surplus); };
  const auto as_is = [](const std::string& name) { return name; };
  const auto unfit = [](const UnfitTensor& tensor) { return tensor.name + " " + tensor.why; };
  return (allow.missing ? "" : list_names(report.missing, "missing", missing)) +
         (allow.surplus ? "" : list_names(report.surplus, "surplus", as_is)) +
         list_names(report.unfit, "of another shape or kind", unfit);
}

/// Why `given` cannot be copied to `own`; empty if it can.
[[nodiscard]] inline std::string find_misfit(const at::Tensor& own, const at::Tensor& given) {
  if (given.sizes() != own.sizes()) return message(given.sizes(), " instead of ", own.sizes());
  if (!c10::canCast(given.scalar_type(), own.scalar_type())) {
    return message(given.scalar_type(), " instead of ", own.scalar_type());
  }
  return own.is_meta() ? "into a tensor without memory (meta device)" : "";
}

/// Of names that stand for one tensor, as tied weights do, one given is enough.
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

[[nodiscard]] inline LoadReport compare_state(const TensorMap& own, const TensorMap& given) {
  LoadReport report;
  split_missing(own, given, report);
  for (const auto& [name, tensor] : given) {
    const auto place = own.find(name);
    if (place == own.end()) {
      report.surplus.push_back(name);
    } else if (auto why = find_misfit(place->second, tensor); !why.empty()) {
      report.unfit.push_back({name, std::move(why)});
    } else {
      report.loaded.push_back(name);
    }
  }
  std::sort(report.loaded.begin(), report.loaded.end());
  return report;
}

}  // namespace detail

inline std::string LoadReport::text() const {
  return detail::message(loaded.size(), " loaded", detail::describe_faults(*this));
}

}  // namespace looptorch
