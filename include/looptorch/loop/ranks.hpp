// SPDX-License-Identifier: MIT
// The ranks of a run, as the loop sees them: processes that train copies of one model on different data. A
// policy with the hook `ranks` gives them for a fit; DataParallel is the library's own. Without such a policy
// the loop has none of this.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/optim/optimizer_parts.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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

  /// Blocks until all ranks have come to this moment, and fills `reduction`. Throws RanksDiffer, with a
  /// sentence that names rank and cause, if a rank is elsewhere, has failed or does not answer.
  virtual void all_reduce(RankReduction& reduction, const std::string& moment) = 0;

  /// Returns into how many shards a window is cut whose sums are kept apart, and then added in a fixed tree,
  /// so that they have the same bits on any number of ranks; 0: into none.
  [[nodiscard]] virtual std::int64_t shards() const { return 0; }
  /// Takes the number of micro-batches that a window has on this rank. Throws UsageError if shards cannot be
  /// made of it.
  virtual void plan_windows(std::int64_t /*micro_batches*/) {}
  /// Begins micro-batch `number` of this rank's window in `step`. Returns its shard.
  virtual std::int64_t enter_micro_batch(const std::vector<at::Tensor>& /*parameters*/, std::int64_t /*step*/,
                                         std::int64_t /*number*/) {
    return 0;
  }

  /// Seeds the random generators for that micro-batch, as `enter_micro_batch` does where there are shards.
  virtual void seed_micro_batch(std::int64_t /*step*/, std::int64_t /*number*/) {}

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

  /// Shares optimizers out in the fit that begins: each rank's update a part of the parameters.
  virtual void share_optimizers() {}
  [[nodiscard]] virtual bool shares_optimizers() const { return false; }
  /// Returns this rank's part of what an optimizer trains; `by_element` if it may be cut within parameters.
  virtual OptimizerParts& parts_of(torch::optim::Optimizer& optimizer, bool by_element) = 0;
  /// Gives all ranks the parameters that each has updated in part.
  virtual void gather(const std::vector<at::Tensor>& /*parameters*/) {}
  /// True if `take_sums` gives a rank the sums of its part only, as gradients of the parts.
  [[nodiscard]] bool scatters() const { return shares_optimizers() && shards() == 0; }

  /// True if layers take batch statistics over all ranks. Ranks then go through a window's micro-batches side
  /// by side, also those that have fewer.
  [[nodiscard]] virtual bool syncs_batch_norm() const { return false; }
  /// A rank's turn in a micro-batch: it has a batch, will have one later in the window, or no more.
  enum class Turn { over = 0, later = 1, now = 2 };
  /// Begins a micro-batch on all ranks. Returns false once no rank has one left in the window.
  virtual bool begin_micro_batch(Turn /*turn*/) { return false; }
  virtual void end_micro_batch() {}

  /// Sends a request to all other ranks, which answer it where they next agree on something; returns the
  /// answers of all, by rank, an empty one of this. The leading rank calls it, between windows.
  virtual std::vector<std::string> ask(const std::string& /*request*/) { return {}; }
  /// Sets how this rank answers requests.
  virtual void serve(std::function<std::string(const std::string&)> /*service*/) {}

  /// Parts from the other ranks as a fit ends. All come here together unless the fit `failed`.
  virtual void end_fit(bool /*failed*/) {}

  /// Tells the other ranks that this one ends with an exception in `step`: they end, too.
  virtual void report_failure(std::string_view what, std::int64_t step) noexcept = 0;

  /// True for the rank that writes reports and snapshots.
  [[nodiscard]] bool leads() const { return rank() == 0; }
};

}  // namespace looptorch
