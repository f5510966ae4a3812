// SPDX-License-Identifier: MIT
// The ranks of a run, as the loop sees them: processes that train copies of one model on different data. A
// policy with the hook `ranks` gives them for a fit; DataParallel is the library's own. Without such a policy
// the loop has none of this.
#pragma once

#include <looptorch/loop/ballot.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

/// The processes of one run. All ranks make the same calls in the same order.
class Ranks {
 public:
  virtual ~Ranks() = default;

  [[nodiscard]] virtual std::int64_t rank() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Blocks until all ranks have come to this moment, and settles `ballot`. Throws RanksDiffer, with a
  /// sentence that names rank and cause, if a rank is elsewhere, has failed or does not answer.
  virtual void agree(Ballot& ballot, const std::string& moment) = 0;

  /// Says that the next backward is the last in the window for these parameters: gradients, times `factor`,
  /// may be summed as they are ready.
  virtual void expect_last_backward(const std::vector<at::Tensor>& parameters, double factor) = 0;
  /// Begins to sum over the ranks whatever is not under way. Every rank calls it, also without gradients.
  virtual void begin_sums(const std::vector<at::Tensor>& parameters, double factor) = 0;
  /// Waits for the sums and puts them into the gradients. A parameter that has no gradient on any rank has
  /// none afterwards.
  virtual void take_sums() = 0;
  /// Forgets sums that are under way, without a wait: an exception ends the window on this rank.
  virtual void drop_sums() = 0;

  /// Tells the other ranks that this one ends with an exception in `step`: they end, too.
  virtual void report_failure(std::string_view what, std::int64_t step) noexcept = 0;

  /// True for the rank that writes reports and snapshots.
  [[nodiscard]] bool leads() const { return rank() == 0; }
};

}  // namespace looptorch
