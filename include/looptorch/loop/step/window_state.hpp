// SPDX-License-Identifier: MIT
// Holds the state of the window under way: UpdateWork for each update, and WindowState for all updates
// together. window.hpp begins and ends a window's state, micro_batch.hpp adds to it, and update_step.hpp
// makes an update from it.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/loop/step/derived_weights.hpp>
#include <looptorch/loop/step/open_window.hpp>
#include <looptorch/loop/step/verdict.hpp>
#include <looptorch/loop/step/window_fault.hpp>
#include <looptorch/loop/step/window_losses.hpp>
#include <looptorch/loop/step/window_weight.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/MemoryFormat.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A gradient of ones for a loss, kept for later losses: making one is a kernel launch.
class RootGradient {
 public:
  /// Returns ones like `loss`; new ones once a hook has written to those that are kept.
  const at::Tensor& of(const at::Tensor& loss) {
    const bool fits = ones_.defined() && ones_.sizes() == loss.sizes() && ones_.device() == loss.device() &&
                      ones_.scalar_type() == loss.scalar_type() && ones_._version() == version_;
    if (!fits) {
      ones_ = at::ones_like(loss.detach(), at::MemoryFormat::Contiguous);
      version_ = ones_._version();
    }
    return ones_;
  }

 private:
  at::Tensor ones_;
  std::int64_t version_ = 0;
};

/// The state of the window under way for one update: weights, losses, gradients and faults.
struct UpdateWork {
  bool due = false;              ///< true if the update takes part in this window
  WindowWeight weight;           ///< how many items the losses are means over
  WindowLosses losses;           ///< losses and metrics of its micro-batches
  LossFault fault;               ///< a loss that is NaN or infinite
  WindowFinding found;           ///< what a policy found out, which ends the fit
  bool overflowed = false;       ///< true if gradients are NaN or infinite; noted before a first update
  bool loss_overflowed = false;  ///< true if a loss is NaN or infinite; noted with `overflowed`
  std::int64_t backwards = 0;    ///< number of backwards so far, if they update parameters
  bool graph_ended = false;      ///< true if a graph has ended the window: the update cannot be retried
  std::optional<GradientScale> backward_factor;  ///< factor on gradients that before_update gave a backward
  at::Tensor closure_sum;                        ///< sum of the differentiated values, for a closure
  RootGradient root;                             ///< the gradient that backward begins with
  std::vector<at::Tensor> gradients;             ///< memory for the list of gradients that hooks see
  Verdict verdict;            ///< the outcome of the last update, perhaps still on the device
  std::int64_t skipped = 0;   ///< 1 once the update is known to be skipped
  std::int64_t pieces = 1;    ///< number of pieces that each micro-batch is split into
  std::int64_t attempts = 1;  ///< number of attempts with this number of pieces

  /// Adds what was differentiated, after multiplying the sum so far by `correction`.
  void add_to_closure_sum(const at::Tensor& weighed, double correction) {
    closure_sum = closure_sum.defined() ? closure_sum * correction + weighed.detach() : weighed.detach();
  }

  /// Forgets the results of micro-batches, but not their weights.
  void forget_results() {
    losses.clear();
    gradients.clear();
    fault.micro_batch.reset();
    overflowed = loss_overflowed = false;
    closure_sum = at::Tensor();
  }

  /// Forgets the micro-batches; the unit of the weights stays.
  void begin_next_window() {
    forget_results();
    weight.next_window();
    fault = {};
    backwards = 0;
    graph_ended = false;
    backward_factor.reset();
    found = {};
  }
};

/// How a window ends. On several ranks they decide it together; on one process each is counted.
enum class WindowEnd {
  counted,     ///< it is a step
  skipped,     ///< no step: the loaders of all ranks skipped its batches
  epoch_over,  ///< no step: no rank has a batch left
  fit_over     ///< no step: a rank stopped the fit before it, or was interrupted with no batch left
};

/// The part of the state of a window that only several ranks have.
struct SharedWindow {
  std::int64_t ranks = 0;           ///< number of ranks that sum its gradients; 0: nothing is summed
  std::int64_t lockstep_turns = 0;  ///< number of turns that they took in lockstep
  bool fit_ends = false;            ///< true if all of them know that the fit ends
};

/// The window under way, whatever the number of updates.
struct WindowState {
  OpenWindow open;                             ///< keeps other Trainers' windows from the same parameters
  WindowOrigin origin;                         ///< where its micro-batches came from
  std::int64_t micro_batches = 0;              ///< number of micro-batches so far
  std::int64_t samples = 0;                    ///< number of samples so far
  std::int64_t skipped_batches = 0;            ///< number of its batches that the range skipped
  std::int64_t previous_micro_batches = 0;     ///< number of micro-batches of the window before
  std::exception_ptr thrown;                   ///< the first exception of after_update hooks in this window
  std::int64_t last_skipped = -1;              ///< step of the last window that was counted as skipped
  bool may_redo = true;                        ///< false in dry steps and replays: a window is then neither
                                               ///< rerun nor skipped
  SharedWindow shared;                         ///< what the ranks know of it
  WindowEnd end = WindowEnd::counted;          ///< how the last window ended
  bool in_epoch = true;                        ///< false in a caller's own loop, which has no epochs
  DerivedWeights derived;                      ///< what policies keep of weights between micro-batches
  PinnedSource pinned = PinnedSource::staged;  ///< how batches are read from pinned memory
  bool refills = true;                         ///< a batch's memory may be refilled once the next is fetched

  /// Returns the number of the window's next micro-batch, skipped ones included.
  [[nodiscard]] std::int64_t next_number() const { return micro_batches + skipped_batches; }
};

inline void keep_first(std::exception_ptr& kept, std::exception_ptr thrown) {
  if (!kept) kept = std::move(thrown);
}

}  // namespace looptorch::detail
