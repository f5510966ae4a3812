// SPDX-License-Identifier: MIT
// Holds named values that one policy publishes and others read. For example, `Validate` publishes
// "validation.loss"; a plateau schedule, early stopping and SnapshotEvery's choice of the best snapshots read
// it. Throws if a policy waits for a name that no policy will publish, and suggests similar names.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/base/text/near_names.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace looptorch {

/// Named values, and how often each was published. What is known of a name:
///
///   published  `publish` has given it a value.
///   announced  A policy is to publish it: `announce` named it, or a prefix of it, as "validation.".
///   pending    Announced by its whole name, or by a prefix under which nothing is published yet.
///   awaited    A policy waits for it in this fit: `await` named it.
///   missing    Awaited, and neither published nor announced.
class MetricBoard {
 public:
  void publish(const std::string& name, double value) {
    values_[name] = value;
    ++publications_[name];
  }

  /// Announces that `name` will be published, or if it ends with a dot, names that begin with it, so that
  /// consumers keep waiting.
  void announce(const std::string& name) { announced_.insert(name); }

  /// Records that the policy `consumer` waits for `name` in this fit. Call it in on_fit_begin.
  void await(const std::string& name, const std::string& consumer) { awaited_.emplace(name, consumer); }
  /// Returns the awaited names, each with the first policy that waits for it.
  [[nodiscard]] const std::map<std::string, std::string>& awaited() const { return awaited_; }
  /// Forgets who waited in the previous fit.
  void forget_awaited() { awaited_.clear(); }

  /// True if an awaited name under the announced `prefix` is none of `names`, not published, and not
  /// announced by its whole name or a longer prefix.
  [[nodiscard]] bool awaits_outside(const std::string& prefix, const std::vector<std::string>& names) const {
    return find_awaited_outside(prefix, names) != awaited_.end();
  }
  /// Throws UsageError, with the nearest of `names`, if `awaits_outside`. Call it once `names` are known to
  /// be all that will be published under `prefix`.
  void refuse_awaited_outside(const std::string& prefix, const std::vector<std::string>& names) const {
    const auto other = find_awaited_outside(prefix, names);
    if (other == awaited_.end()) return;
    throw UsageError(message(other->second, " waits for the metric '", other->first, "', and under '", prefix,
                             "' are published: ", names.empty() ? "none" : detail::joined(names, ", "),
                             ". A policy that publishes another one announces it in on_fit_begin",
                             ask_for_near(other->first, names)));
  }

  /// Returns a sentence about the first missing name; empty if none is missing.
  [[nodiscard]] std::string describe_missing() const {
    for (const auto& [name, consumer] : awaited_)
      if (!values_.count(name) && !is_announced(name))
        return message(consumer, " waits for the metric '", name, "', which is not published",
                       list_published(name));
    return {};
  }

  [[nodiscard]] std::optional<double> find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Returns how often `name` was published. A consumer acts when this has grown.
  [[nodiscard]] std::int64_t publications(const std::string& name) const {
    const auto found = publications_.find(name);
    return found == publications_.end() ? 0 : found->second;
  }

  /// Throws UsageError, with a list of the published names, if `name` is neither published nor pending.
  /// `consumer` names the policy that waits for it. Call it when a second epoch begins: by then every policy
  /// has had a chance to publish.
  void require_published(const std::string& name, const std::string& consumer) const {
    if (values_.count(name) || is_pending(name)) return;
    throw UsageError(message(consumer, " waits for the metric '", name,
                             "', which was not published within an epoch", list_published(name)));
  }

  [[nodiscard]] const std::map<std::string, double>& values() const { return values_; }

  void save(StateDict& out) const {
    std::int64_t number = 0;
    for (const auto& [name, value] : values_) {
      const std::string key = std::to_string(number++);
      out.set(key + ".name", name);
      out.set(key + ".value", value);
      out.set(key + ".publications", publications(name));
    }
    out.set("size", number);
  }
  void load(const StateDict& in) {
    values_.clear();
    publications_.clear();
    for (std::int64_t number = in.get<std::int64_t>("size"); number-- > 0;) {
      const StateDict entry = in.under(std::to_string(number));
      values_[entry.get<std::string>("name")] = entry.get<double>("value");
      publications_[entry.get<std::string>("name")] = entry.get<std::int64_t>("publications");
    }
  }

 private:
  using Awaited = std::map<std::string, std::string>;  // name to first consumer

  static bool means(const std::string& announced, const std::string& name) {
    return announced.ends_with('.') ? name.starts_with(announced) : name == announced;
  }
  /// True if `name` is announced by more than its first `beyond` characters.
  [[nodiscard]] bool is_announced(const std::string& name, std::size_t beyond = 0) const {
    return std::any_of(announced_.begin(), announced_.end(), [&](const std::string& announced) {
      return announced.size() > beyond && means(announced, name);
    });
  }

  [[nodiscard]] Awaited::const_iterator find_awaited_outside(const std::string& prefix,
                                                             const std::vector<std::string>& names) const {
    return std::find_if(awaited_.begin(), awaited_.end(), [&](const auto& item) {
      const std::string& name = item.first;
      return name.starts_with(prefix) && !values_.count(name) && !is_announced(name, prefix.size()) &&
             std::find(names.begin(), names.end(), name) == names.end();
    });
  }

  static std::string ask_for_near(const std::string& name, const std::vector<std::string>& names) {
    const auto near = near_names(name, names, 1);
    return near.empty() ? "" : "; did you mean '" + near.front() + "'?";
  }
  [[nodiscard]] std::string list_published(const std::string& name) const {
    if (values_.empty()) return "; none is: list a Validate";
    std::vector<std::string> names;
    for (const auto& item : values_) names.push_back(item.first);
    return "; published are: " + detail::joined(names, ", ") + ask_for_near(name, names);
  }

  [[nodiscard]] bool is_pending(const std::string& name) const {
    return std::any_of(announced_.begin(), announced_.end(), [&](const std::string& announced) {
      const auto first = values_.lower_bound(announced);
      const bool silent = first == values_.end() || !first->first.starts_with(announced);
      return means(announced, name) && (announced == name || silent);
    });
  }

  std::map<std::string, double> values_;
  std::map<std::string, std::int64_t> publications_;
  std::set<std::string> announced_;
  Awaited awaited_;
};

}  // namespace looptorch
