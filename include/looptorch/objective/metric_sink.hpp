// SPDX-License-Identifier: MIT
// The interface by which metrics and examples that are offered to a run reach the policy that writes them,
// such as LogMetrics.
#pragma once

#include <looptorch/base/example.hpp>
#include <looptorch/objective/loss.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

/// Takes numbers of the window under way. Called by the thread that trains, so it must not wait for a device.
class MetricSink {
 public:
  /// Takes a number that belongs to the run as a whole.
  static constexpr std::size_t kWholeRun = static_cast<std::size_t>(-1);

  /// Takes a number of the update with this index. A tensor in `value` is kept, and must not change.
  virtual void take(std::size_t update, std::string_view name, const Quantity& value) = 0;
  /// Takes examples, which take the place of earlier ones with this name.
  virtual void take_examples(std::string name, std::vector<Example> examples) = 0;

 protected:
  ~MetricSink() = default;
};

}  // namespace looptorch
