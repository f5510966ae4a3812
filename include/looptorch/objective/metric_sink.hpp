// SPDX-License-Identifier: MIT
// Defines the interface through which a run's metrics and examples reach the policy that writes them, such as
// LogMetrics.
#pragma once

#include <looptorch/base/example.hpp>
#include <looptorch/objective/loss.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

/// Takes numbers of the window under way. The training thread calls it, so it must not wait for a device.
class MetricSink {
 public:
  /// The index for a number of the whole run.
  static constexpr std::size_t kWholeRun = static_cast<std::size_t>(-1);

  /// Takes a number of the update with this index. A tensor in `value` is kept, and must not change.
  virtual void record(std::size_t update, std::string_view name, const Quantity& value) = 0;
  /// Takes examples, which replace earlier ones of this name.
  virtual void record_examples(std::string name, std::vector<Example> examples) = 0;

 protected:
  ~MetricSink() = default;
};

}  // namespace looptorch
