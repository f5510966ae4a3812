// SPDX-License-Identifier: MIT
// Remembers the best values of a metric so far, one or a few, and the steps that had them. StopEarly,
// RestoreBest and PlateauDecay use it, and SnapshotEvery, which keeps the best snapshots.
#pragma once

#include <looptorch/base/state_dict.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace looptorch {

/// Says which of two values of a metric is better.
enum class Better {
  lower,   ///< losses, error rates
  higher,  ///< accuracies, scores
};

/// The best values so far, the best first, each with the step at which it was published. Among equal values,
/// the earlier ranks better.
class BestFew {
 public:
  struct Entry {
    double value;
    std::int64_t step;
  };

  /// Adds `value`, and returns true, if it is among the `count` best: to be better than another value it must
  /// pass the other by more than `margin`. Drops values beyond the `count` best. Never adds NaN or the worst
  /// infinity.
  bool offer(double value, std::int64_t step, Better better, std::size_t count = 1, double margin = 0) {
    const auto passes = [&](double other) {
      return better == Better::lower ? value < other - margin : value > other + margin;
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (!passes(better == Better::lower ? kInfinity : -kInfinity)) return false;
    const auto same = std::find_if(entries_.begin(), entries_.end(),
                                   [&](const Entry& entry) { return entry.step == step; });
    if (same != entries_.end()) {  // published twice in one step
      if (!passes(same->value)) return false;
      entries_.erase(same);
    }
    const auto place = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return passes(entry.value); });
    if (static_cast<std::size_t>(place - entries_.begin()) >= count) return false;
    entries_.insert(place, {value, step});
    if (entries_.size() > count) entries_.resize(count);
    return true;
  }

  /// Returns the best value; empty before the first.
  [[nodiscard]] std::optional<double> value() const {
    return entries_.empty() ? std::nullopt : std::optional(entries_.front().value);
  }
  /// Returns the step of the best value; -1 before the first.
  [[nodiscard]] std::int64_t step() const { return entries_.empty() ? -1 : entries_.front().step; }

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] std::set<std::int64_t> steps() const {
    std::set<std::int64_t> steps;
    for (const Entry& entry : entries_) steps.insert(entry.step);
    return steps;
  }

  void save(StateDict& out) const {
    if (!entries_.empty()) out.set("value", entries_.front().value);
    out.set("step", step());
    for (std::size_t i = 1; i < entries_.size(); ++i) {
      const std::string key = std::to_string(i);
      out.set(key + ".value", entries_[i].value);
      out.set(key + ".step", entries_[i].step);
    }
  }
  void load(const StateDict& in) {
    entries_.clear();
    if (const auto step = in.get<std::int64_t>("step"); step >= 0)
      entries_.push_back({in.get<double>("value"), step});
    for (std::string key = "1"; in.contains(key + ".step"); key = std::to_string(entries_.size()))
      entries_.push_back({in.get<double>(key + ".value"), in.get<std::int64_t>(key + ".step")});
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace looptorch
