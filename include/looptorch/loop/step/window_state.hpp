// SPDX-License-Identifier: MIT
// Holds the state of the window under way: UpdateWork for each update, and WindowState for all updates
// together. window.hpp begins and ends it, micro_batch.hpp adds to it, and update_step.hpp makes an update of
// it.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/data/batch.hpp>
#include <looptorch/loop/step/derived_weights.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/open_window.hpp>
#include <looptorch/loop/step/verdict.hpp>
#include <looptorch/loop/step/window_losses.hpp>
#include <looptorch/loop/step/window_weight.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/MemoryFormat.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// One update's part of the window under way.
struct UpdateWork {
  bool due = false;                            ///< true if the update takes part in this window
  WindowWeight weight;                         ///< how many items the losses are means over
  WindowLosses losses;                         ///< losses and metrics of its micro-batches
  std::optional<std::size_t> at_fault;         ///< the first micro-batch whose loss is NaN or infinite
  std::optional<std::string> fault_elsewhere;  ///< the error of another rank's loss, in its words
  bool overflowed = false;       ///< true if gradients are NaN or infinite; noted before a first update
  bool loss_overflowed = false;  ///< true if a loss is NaN or infinite; noted with `overflowed`
  std::int64_t backwards = 0;    ///< number of backwards so far, if they update parameters
  std::optional<GradientScale> backward_factor;  ///< factor on gradients that before_update gave a backward
  std::shared_ptr<const Finding> finding;        ///< what a policy found, which ends the fit
  std::string explanation;                       ///< the finding in sentences
  std::string full_error;                        ///< the whole error, the same on all ranks; or empty
  bool found_in_loss = false;                    ///< true if the finding is about a loss, not a gradient
  at::Tensor closure_sum;                        ///< sum of the differentiated values, for a closure
  std::vector<at::Tensor> gradients;             ///< memory for the list of gradients that hooks see
  Verdict verdict;            ///< the outcome of the last update, perhaps still on the device
  std::int64_t skipped = 0;   ///< 1 once the update is known to be skipped
  std::int64_t pieces = 1;    ///< number of pieces that each micro-batch is split into
  std::int64_t attempts = 1;  ///< number of attempts with this number of pieces

  /// Returns a gradient of ones for a loss, kept for later losses: making one is a kernel launch. Not reused
  /// once a hook has written to it.
  const at::Tensor& root_gradient(const at::Tensor& loss) {
    const bool fits = root_.defined() && root_.sizes() == loss.sizes() && root_.device() == loss.device() &&
                      root_.scalar_type() == loss.scalar_type() && root_._version() == root_version_;
    if (!fits) {
      root_ = at::ones_like(loss.detach(), at::MemoryFormat::Contiguous);
      root_version_ = root_._version();
    }
    return root_;
  }

  /// Adds what was differentiated, after multiplying the sum so far by `correction`.
  void add_to_closure_sum(const at::Tensor& weighed, double correction) {
    closure_sum = closure_sum.defined() ? closure_sum * correction + weighed.detach() : weighed.detach();
  }

  /// Forgets the results of micro-batches, but not their weights.
  void forget_results() {
    losses.clear();
    gradients.clear();
    at_fault.reset();
    overflowed = loss_overflowed = false;
    closure_sum = at::Tensor();
  }

  /// Forgets the micro-batches; the unit of the weights stays.
  void begin_next_window() {
    forget_results();
    weight.next_window();
    fault_elsewhere.reset();
    backwards = 0;
    backward_factor.reset();
    finding = nullptr;
    full_error.clear();
  }

 private:
  at::Tensor root_;
  std::int64_t root_version_ = 0;
};

/// How a window ends. On several ranks they decide it together; on one process each is counted.
enum class WindowEnd {
  counted,     ///< it is a step
  skipped,     ///< no step: the loaders of all ranks skipped its batches
  epoch_over,  ///< no step: no rank has a batch left
  fit_over     ///< no step: a rank stopped the fit before it, or was interrupted with no batch left
};

/// The window under way, whatever the number of updates.
struct WindowState {
  OpenWindow open;                             ///< keeps other Trainers' windows from the same parameters
  WindowOrigin origin;                         ///< where its micro-batches came from
  std::int64_t micro_batches = 0;              ///< number of micro-batches so far
  std::int64_t samples = 0;                    ///< number of samples so far
  std::int64_t skipped_batches = 0;            ///< number of its batches that the range skipped
  std::int64_t summing_ranks = 0;              ///< number of ranks that sum it; 0: nothing is summed
  std::int64_t lockstep_turns = 0;             ///< number of turns that ranks took in lockstep
  std::int64_t previous_micro_batches = 0;     ///< number of micro-batches of the window before
  std::exception_ptr thrown;                   ///< the first exception of after_update hooks in this window
  std::int64_t last_skipped = -1;              ///< step of the last window that was counted as skipped
  bool may_retry = true;                       ///< false while memory is measured: a window is then neither
                                               ///< retried nor skipped
  WindowEnd end = WindowEnd::counted;          ///< how the last window ended
  bool ranks_end = false;                      ///< true if all ranks know that the fit ends
  bool in_epoch = true;                        ///< false in a caller's own loop, which has no epochs
  DerivedWeights derived;                      ///< what policies keep of weights between micro-batches
  PinnedSource pinned = PinnedSource::staged;  ///< how batches are read from pinned memory

  /// Returns the number of the window's next micro-batch, skipped ones included.
  [[nodiscard]] std::int64_t next_number() const { return micro_batches + skipped_batches; }
};

/// Returns where a finding's micro-batches came from: none of this rank's if the fault is on another rank, or
/// on none.
[[nodiscard]] inline WindowOrigin origin_of_finding(const UpdateWork& work, const WindowOrigin& window) {
  const Finding& finding = *work.finding;
  const bool is_here =
      finding.ranks == 1 || (finding.is_found() && finding.cause != Finding::Cause::elsewhere);
  const WindowOrigin place = work.at_fault ? window.narrowed(*work.at_fault)
                             : is_here     ? window
                                           : window.elsewhere({});
  return place.explained(work.finding, work.explanation).reported_as(work.full_error);
}

inline void keep_first(std::exception_ptr& kept, std::exception_ptr thrown) {
  if (!kept) kept = std::move(thrown);
}

}  // namespace looptorch::detail
