// SPDX-License-Identifier: MIT
// Named values that one policy publishes and others consume: `Validate` writes "validation.loss", a plateau
// schedule, early stopping and best snapshots read it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace looptorch {

/// Named values with the number of times that each was published.
class MetricBoard {
 public:
  void publish(const std::string& name, double value) {
    values_[name] = value;
    ++publications_[name];
  }

  /// Announces that names beginning with `prefix` will be published, so that consumers keep waiting for them.
  void announce(const std::string& prefix) { announced_.insert(prefix); }

  [[nodiscard]] std::optional<double> find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Returns how often `name` was published. A consumer acts when this has grown.
  [[nodiscard]] std::int64_t publications(const std::string& name) const {
    const auto found = publications_.find(name);
    return found == publications_.end() ? 0 : found->second;
  }

  /// Throws UsageError, with a list of the published names, if `name` was never published and is not
  /// announced either. `consumer` names the policy that waits for it. Call it when a second epoch begins: by
  /// then every policy has had a chance to publish.
  void require(const std::string& name, const std::string& consumer) const {
    if (values_.count(name) || is_expected(name)) return;
    std::string known;
    for (const auto& [each, value] : values_) known += (known.empty() ? "" : ", ") + each;
    throw UsageError(message(consumer, " waits for the metric '", name,
                             "', which was not published within an epoch; ",
                             known.empty() ? "none is: list a Validate" : "published are: " + known));
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
    *this = MetricBoard{};
    for (std::int64_t number = in.get<std::int64_t>("size"); number-- > 0;) {
      const StateDict entry = in.under(std::to_string(number));
      values_[entry.get<std::string>("name")] = entry.get<double>("value");
      publications_[entry.get<std::string>("name")] = entry.get<std::int64_t>("publications");
    }
  }

 private:
  /// True if a prefix of `name` is announced and nothing has been published under it yet.
  [[nodiscard]] bool is_expected(const std::string& name) const {
    for (const std::string& prefix : announced_) {
      const auto first = values_.lower_bound(prefix);
      const bool silent = first == values_.end() || !first->first.starts_with(prefix);
      if (name.starts_with(prefix) && silent) return true;
    }
    return false;
  }

  std::map<std::string, double> values_;
  std::map<std::string, std::int64_t> publications_;
  std::set<std::string> announced_;
};

}  // namespace looptorch
