// SPDX-License-Identifier: MIT
// Finds the module that called an operator which reads no parameter, such as a softmax. The call stack gives
// the module's type. If several modules have that type, two parameters narrow the choice: the last one used
// before the operator, and the first one used after it.
#pragma once

#include <looptorch/base/running_module.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A module with its path in the model, which is empty for the model itself.
struct KnownModule {
  std::string path;
  std::string type;             // "torch::nn::SoftmaxImpl"
  bool has_parameters = false;  // it or a module within it has some
};

/// The module in which an operator ran, as far as known.
struct ModulePlace {
  std::string type = {};                // the type whose forward called the operator; empty if unknown
  std::vector<std::string> paths = {};  // modules of that type that fit; without a type, candidates
};

/// Searches a model's modules for the one whose forward called an operator.
class ModuleSearch {
 public:
  /// `modules` are in the order of their registration, each before its children.
  explicit ModuleSearch(std::vector<KnownModule> modules) : modules_(std::move(modules)) {}

  /// Returns the place of an operator. `stack` has the types whose forward had called it, the innermost
  /// first. `after` is the last parameter that was used to compute its inputs, `before` the first that is
  /// used with its result; empty where there is none. If the stack names no type, returns the program's
  /// modules without parameters that are registered between the two. (LibTorch's own modules always have a
  /// type.)
  [[nodiscard]] ModulePlace find(const std::vector<std::string>& stack, const std::string& after,
                                 const std::string& before) const {
    for (std::size_t i = 0; i < stack.size(); ++i)
      if (!of_type(stack[i]).empty() || is_of_libtorch(stack[i]))
        return {stack[i], paths(nearest(within(of_type(stack[i]), stack, i + 1), after, before))};
    return {"", after.empty() && before.empty() ? std::vector<std::string>() : paths(guesses(after, before))};
  }

  /// Returns the place of an operator of a program, which may be a part of the model.
  [[nodiscard]] ModulePlace of_program(const RunningModule& module) const {
    ModulePlace place{module.type};
    for (const KnownModule& known : modules_)
      if (!module.path.empty() && (known.path == module.path || known.path.ends_with('.' + module.path)))
        place.paths.push_back(known.path);
    return place;
  }

 private:
  using Indices = std::vector<std::size_t>;
  static constexpr std::string_view kLibTorch = "torch::nn::";

  static bool is_of_libtorch(std::string_view type) {
    return type.starts_with(kLibTorch) && type.ends_with("Impl") && type.find('<') == type.npos;
  }

  [[nodiscard]] Indices of_type(const std::string& type) const {
    Indices found;
    for (std::size_t i = 0; i < modules_.size(); ++i)
      if (modules_[i].type == type) found.push_back(i);
    return found;
  }

  /// Keeps the modules that lie inside modules of the outer types on the stack; all of them if none does.
  [[nodiscard]] Indices within(Indices found, const std::vector<std::string>& stack,
                               std::size_t outer) const {
    for (; outer < stack.size() && found.size() > 1; ++outer) {
      const Indices parents = of_type(stack[outer]);
      prefer(found, [&](std::size_t i) {
        return std::any_of(parents.begin(), parents.end(), [&](std::size_t parent) {
          return is_within(modules_[i].path, modules_[parent].path);
        });
      });
    }
    return found;
  }

  /// Keeps the modules whose paths share the most leading names with the two parameters' paths; of these the
  /// ones registered between the two, if any.
  [[nodiscard]] Indices nearest(Indices found, const std::string& after, const std::string& before) const {
    const auto nearness = [&](std::size_t i) {
      return common_names(modules_[i].path, after) + common_names(modules_[i].path, before);
    };
    std::size_t most = 0;
    for (const std::size_t i : found) most = std::max(most, nearness(i));
    if (found.size() > 1) prefer(found, [&](std::size_t i) { return nearness(i) == most; });
    if (found.size() > 1)
      if (Indices inner = between(found, after, before); !inner.empty()) return inner;
    return found;
  }

  /// Keeps the modules registered after the owner of parameter `after` and before that of `before`.
  [[nodiscard]] Indices between(Indices found, const std::string& after, const std::string& before) const {
    const std::int64_t first = after.empty() ? -1 : owner_of(after);
    const std::int64_t last = before.empty() ? static_cast<std::int64_t>(modules_.size()) : owner_of(before);
    if (first < 0 && !after.empty()) return {};  // not a parameter of the model
    std::erase_if(found, [&](std::size_t i) {
      return static_cast<std::int64_t>(i) <= first || static_cast<std::int64_t>(i) >= last;
    });
    return found;
  }

  /// Returns the program's modules without parameters that are registered between the two. If one of the two
  /// is empty, drops modules that follow another module with parameters.
  [[nodiscard]] Indices guesses(const std::string& after, const std::string& before) const {
    Indices own;
    for (std::size_t i = 0; i < modules_.size(); ++i)
      if (!modules_[i].has_parameters && !modules_[i].type.starts_with(kLibTorch)) own.push_back(i);
    own = between(own, after, before);
    const auto first = static_cast<std::size_t>(after.empty() ? 0 : owner_of(after) + 1);
    if (after.empty() || before.empty())
      std::erase_if(own, [&](std::size_t i) {
        return std::any_of(modules_.begin() + static_cast<std::ptrdiff_t>(first),
                           modules_.begin() + static_cast<std::ptrdiff_t>(i), [&](const KnownModule& other) {
                             return other.has_parameters && !is_within(modules_[i].path, other.path);
                           });
      });
    return own;
  }

  /// Returns the module that registers a parameter; -1 if none of the model does.
  [[nodiscard]] std::int64_t owner_of(const std::string& parameter) const {
    const std::size_t dot = parameter.rfind('.');
    const std::string path = dot == parameter.npos ? std::string() : parameter.substr(0, dot);
    for (std::size_t i = 0; i < modules_.size(); ++i)
      if (modules_[i].path == path) return static_cast<std::int64_t>(i);
    return -1;
  }

  [[nodiscard]] std::vector<std::string> paths(const Indices& found) const {
    std::vector<std::string> paths;
    for (const std::size_t i : found)
      paths.push_back(modules_[i].path.empty() ? "the model itself" : modules_[i].path);
    return paths;
  }

  /// Keeps the modules for which the condition holds; all of them if it holds for none.
  template <class Condition>
  static void prefer(Indices& found, const Condition& condition) {
    Indices kept;
    std::copy_if(found.begin(), found.end(), std::back_inserter(kept), condition);
    if (!kept.empty()) found = std::move(kept);
  }

  /// True if `path` is `parent` or lies within it.
  static bool is_within(const std::string& path, const std::string& parent) {
    return parent.empty() || path == parent || path.starts_with(parent + ".");
  }

  /// Returns how many leading names two paths have in common.
  static std::size_t common_names(std::string_view a, std::string_view b) {
    std::size_t names = 0;
    while (!a.empty() && !b.empty() && a.substr(0, a.find('.')) == b.substr(0, b.find('.'))) {
      ++names;
      a = a.find('.') == a.npos ? "" : a.substr(a.find('.') + 1);
      b = b.find('.') == b.npos ? "" : b.substr(b.find('.') + 1);
    }
    return names;
  }

  std::vector<KnownModule> modules_;
};

}  // namespace looptorch::detail
