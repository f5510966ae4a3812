// SPDX-License-Identifier: MIT
// Traces NaN or infinity in a tensor back through the operators that passed it on, to the first operator that
// made it from finite numbers. Infinity that a program uses on purpose, such as the -inf of an attention
// mask, does not count as a cause.
#pragma once

#include <looptorch/autopsy/operator_call.hpp>
#include <looptorch/autopsy/operator_log.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The source of a bad value: a call of an operator, a named tensor (parameter, buffer, batch) that held it
/// already, or code outside of operators.
struct Origin {
  enum class Kind { call, named, outside } kind = Kind::call;
  std::int64_t call = kNoCall;          // kind call: the call that made it; else the first that read it
  const ReadTensor* read = nullptr;     // the bad tensor as that call read it; null if the call made it
  bool deliberate = false;              // infinity that the program put in on purpose
  std::vector<std::int64_t> path = {};  // the calls that passed it on, in order
};

/// Searches a log for origins. One search remembers what it found, so that shared paths are walked once.
class OriginSearch {
 public:
  explicit OriginSearch(const OperatorLog& log) : log_(log) {}

  /// Returns the origin of a tensor's contents. `reader` is the number of the call that read it; one past the
  /// last for a loss or a gradient, which no call reads.
  [[nodiscard]] Origin of(const ReadTensor& read, std::int64_t reader) {
    for (auto writer = read.writers.rbegin(); writer != read.writers.rend(); ++writer) {
      const OperatorCall& call = log_.call(*writer);
      if (call.is_uninitialised) return {Origin::Kind::outside, reader, &read};
      if (call.bad_output() && (read.facts.nans == 0 || call.gave_nan())) return of_call(*writer);
    }
    if (!read.known) return {Origin::Kind::outside, reader, &read};
    if (const std::int64_t writer = unlisted_writer(*read.known, reader); writer != kNoCall)
      return of_call(writer);
    const bool is_mask = read.known->kind != KnownTensor::Kind::parameter && read.facts.nans == 0 &&
                         !read.facts.has_positive_infinity;
    return {Origin::Kind::named, reader, &read, is_mask};
  }

  /// Returns the parameter or buffer that a call worked on, itself or a copy; empty if none.
  [[nodiscard]] std::string parameter_of(std::int64_t id, int depth = 0) const {
    for (const ReadTensor& input : log_.call(id).inputs)
      if (input.known && input.known->kind != KnownTensor::Kind::batch) return input.known->name;
    if (depth == kMaxCopies) return {};
    for (const ReadTensor& input : log_.call(id).inputs)
      if (!input.writers.empty() && is_whole_copy(log_.call(input.writers.back())))
        if (std::string name = parameter_of(input.writers.back(), depth + 1); !name.empty()) return name;
    return {};
  }

  /// Returns the last parameter that was used to compute a call's inputs.
  [[nodiscard]] std::string last_parameter_before(std::int64_t id) const {
    std::set<std::int64_t, std::greater<>> open{id};
    for (int steps = 0; !open.empty() && steps < kMaxSteps; ++steps) {
      const std::int64_t latest = *open.begin();
      open.erase(open.begin());
      if (latest != id)
        if (std::string name = parameter_of(latest); !name.empty()) return name;
      for (const ReadTensor& input : log_.call(latest).inputs)
        for (std::int64_t writer : input.writers)  // also the operator that allocated a kernel's result
          for (; writer != kNoCall && !log_.call(writer).is_node; writer = log_.call(writer).parent)
            open.insert(writer);
    }
    return {};
  }

  /// Returns the parameter of the first later forward operator that works on a call's results, directly or
  /// through others; empty if there is none before the loss.
  [[nodiscard]] std::string first_parameter_after(std::int64_t id) const {
    std::unordered_set<std::int64_t> reached{id};
    for (std::int64_t outer = log_.call(id).parent; outer != kNoCall && !log_.call(outer).is_node;
         outer = log_.call(outer).parent)
      reached.insert(outer);
    const auto has_reached = [&](const ReadTensor& input) {
      return std::any_of(input.writers.begin(), input.writers.end(),
                         [&](std::int64_t writer) { return reached.contains(writer); });
    };
    for (std::int64_t later = id + 1; later < static_cast<std::int64_t>(log_.calls().size()); ++later) {
      const OperatorCall& call = log_.call(later);
      if (call.node != log_.call(id).node) continue;
      const bool is_part = reached.contains(call.parent);  // of an operator that was examined as a whole
      if (!is_part && std::none_of(call.inputs.begin(), call.inputs.end(), has_reached)) continue;
      reached.insert(later);
      if (std::string name = is_part ? std::string() : parameter_of(later); !name.empty()) return name;
    }
    return {};
  }

 private:
  static constexpr int kMaxCopies = 4, kMaxSteps = 4096;

  static bool is_copy(std::string_view name) {
    static constexpr std::array<std::string_view, 5> kNames{"aten::_to_copy", "aten::clone", "aten::copy_",
                                                            "aten::contiguous", "aten::to"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  }

  /// Returns the call that wrote to a tensor without returning it, as BatchNorm does to its statistics: the
  /// last that read it while it was finite. None if it was not finite before the micro-batch.
  [[nodiscard]] std::int64_t unlisted_writer(const KnownTensor& known, std::int64_t reader) const {
    if (!known.facts.is_finite()) return kNoCall;
    while (--reader >= 0)
      for (const ReadTensor& input : log_.call(reader).inputs)
        if (input.known == &known && input.facts.is_finite()) return reader;
    return kNoCall;
  }

  /// True if the target's former contents do not matter: `copy_` overwrites them, or nothing was ever written
  /// there. Batches and parameters were written before the micro-batch.
  [[nodiscard]] bool is_overwritten(const OperatorCall& call, const ReadTensor& target) const {
    if (call.name == "aten::copy_") return true;
    return target.writers.empty() ? !target.known : log_.call(target.writers.back()).is_uninitialised;
  }

  /// True for a copy in its own right, not one within another operator, such as addmm's copy of the bias.
  [[nodiscard]] bool is_whole_copy(const OperatorCall& call) const {
    return is_copy(call.name) &&
           (call.name != "aten::copy_" || call.parent == kNoCall || is_copy(log_.call(call.parent).name));
  }

  /// Returns the origin of a bad result: that of the first bad input, NaN before infinity; the call itself if
  /// its inputs are good, or hold only infinities that the program put in on purpose, as a mask does.
  Origin of_call(std::int64_t id) {
    if (const auto found = memo_.find(id); found != memo_.end()) return found->second;
    const OperatorCall& call = log_.call(id);
    bool passes_mask = false;
    for (const bool wants_nan : {true, false})
      for (const ReadTensor& input : call.inputs) {
        if (wants_nan ? input.facts.nans == 0 : input.facts.infinities == 0) continue;
        if (input.is_target && is_overwritten(call, input)) continue;
        Origin origin = of(input, id);
        passes_mask |= origin.deliberate;
        if (origin.deliberate) continue;
        origin.path.push_back(id);
        return memo_[id] = std::move(origin);
      }
    const bool is_deliberate = !call.gave_nan() && (call.has_infinite_argument || passes_mask);
    return memo_[id] = {Origin::Kind::call, id, nullptr, is_deliberate, {id}};
  }

  const OperatorLog& log_;
  std::unordered_map<std::int64_t, Origin> memo_;
};

}  // namespace looptorch::detail
