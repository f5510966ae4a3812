// SPDX-License-Identifier: MIT
// Defines the loop's interface to ranks, the processes that train copies of one model on different data. A
// policy such as DataParallel provides an implementation by the hook `ranks`. Without such a policy the loop
// compiles none of this.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

struct UpdateView;

/// The processes of one run. All ranks make the same calls in the same order.
class Ranks {
 public:
  virtual ~Ranks() = default;

  [[nodiscard]] virtual std::int64_t rank() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Blocks until all ranks have called this, and fills `reduction`. `point` says where in the run the ranks
  /// are, for example "the end of step 7". Throws RanksDiffer, which names rank and cause, if a rank names
  /// another point, has failed or does not answer.
  virtual void all_reduce(RankReduction& reduction, const std::string& point) = 0;

  /// Returns the number of chunks of a window. Each chunk's sums are kept apart and added in a fixed tree,
  /// for the same bits on any number of ranks. 0: no chunks.
  [[nodiscard]] virtual std::int64_t chunks() const { return 0; }
  /// Announces the number of micro-batches in a window on this rank. Throws UsageError if it cannot be cut
  /// into chunks.
  virtual void plan_windows(std::int64_t /*micro_batches*/) {}
  /// Begins micro-batch `number` of this rank's window in `step`. Returns its chunk.
  virtual std::int64_t enter_micro_batch(const UpdateView& /*update*/, std::int64_t /*step*/,
                                         std::int64_t /*number*/) {
    return 0;
  }

  /// Seeds the random generators for micro-batch `number` in `step`; with chunks enter_micro_batch does so.
  virtual void seed_micro_batch(std::int64_t /*step*/, std::int64_t /*number*/) {}

  /// Announces the window's last backward for this update: its gradients, times `factor`, may be
  /// summed as soon as they are ready.
  virtual void expect_last_backward(const UpdateView& update, double factor) = 0;
  /// Begins the sums that `expect_last_backward` has not begun. Every rank calls it, even without gradients.
  virtual void begin_sums(const UpdateView& update, double factor) = 0;
  /// Waits for the sums and writes them to the gradients. A parameter without a gradient on any rank gets
  /// none.
  virtual void take_sums() = 0;
  /// Drops unfinished sums without waiting: an exception ends the window on this rank.
  virtual void drop_sums() = 0;

  /// Shards optimizers in this fit: each rank updates its part of the parameters.
  virtual void shard_optimizers() {}
  [[nodiscard]] virtual bool shards_optimizers() const { return false; }
  /// Returns this rank's shard of an optimizer's parameters; `by_element` if it may cut a parameter.
  virtual OptimizerShards& shards_of(torch::optim::Optimizer& optimizer, bool by_element) = 0;
  /// Gathers an update's parameters on all ranks after each has updated its shard.
  virtual void gather(const UpdateView& /*update*/) {}
  /// True if `take_sums` gives a rank only the sums of its shard, as gradients of the shard.
  [[nodiscard]] bool scatters() const { return shards_optimizers() && chunks() == 0; }

  /// True if layers take batch statistics over all ranks (SyncBN). Ranks then run a window's micro-batches in
  /// lockstep, also those that have fewer.
  [[nodiscard]] virtual bool syncs_batch_norm() const { return false; }
  /// A rank's turn in a micro-batch: it has a batch now, will have one later in the window, or has none left.
  enum class Turn { over = 0, later = 1, now = 2 };
  /// Begins a micro-batch on all ranks. Returns false once no rank has one left in the window.
  virtual bool begin_micro_batch(Turn /*turn*/) { return false; }
  virtual void end_micro_batch() {}

  /// Sends a request to all other ranks, which answer it at their next reduction. Returns all answers, by
  /// rank; this rank's is empty. The leading rank calls it, between windows.
  virtual std::vector<std::string> ask(const std::string& /*request*/) { return {}; }
  /// Sets how this rank answers requests.
  virtual void serve(std::function<std::string(const std::string&)> /*service*/) {}

  /// Ends the communication as a fit ends. All ranks call it together unless the fit `failed`.
  virtual void end_fit(bool /*failed*/) {}

  /// Tells the other ranks that this one fails in `step`, so that they end too.
  virtual void report_failure(std::string_view what, std::int64_t step) noexcept = 0;

  /// True for the rank that writes reports and snapshots.
  [[nodiscard]] bool leads() const { return rank() == 0; }
};

}  // namespace looptorch
