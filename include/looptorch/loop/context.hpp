// SPDX-License-Identifier: MIT
// Defines the arguments of hooks, one type for each point of the loop (fit > epoch > window > micro-batch).
// None of these types is a template, so a policy is written once for all models. UpdateContext is defined in
// update_context.hpp, which this header includes.
#pragma once

#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/update_context.hpp>
#include <looptorch/loop/window_place.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

namespace looptorch {

/// Before a fit loads a snapshot; nothing has been loaded yet.
struct ResumeContext {
  const Run& run;
  std::int64_t step;  ///< windows finished when the snapshot was taken
};

/// The beginning of a fit or of a loop of `step`, its first window, and its end.
struct FitContext {
  Run& run;
  FitStatus status = FitStatus::completed;  ///< meaningful in `on_fit_end`
  /// True in `on_fit_end` if the run was beyond this fit's end as it began, as when it resumes within a later
  /// fit of the program.
  bool began_beyond = false;
};

/// The beginning and the end of an epoch. An epoch that `max_steps` or a stop cuts short has no end.
struct EpochContext {
  Run& run;
};

/// One forward pass and its loss.
struct ForwardContext {
  const Run& run;
  bool training;  ///< false in `evaluate`
  /// A place for values derived from weights, for the window's next micro-batch; null if no
  /// micro-batch follows with the same weights.
  std::shared_ptr<void>* kept = nullptr;
};

/// Out of memory in a window or an evaluation, in a Trainer that lists a policy with `pieces`.
class OutOfMemoryContext {
 public:
  OutOfMemoryContext(const Run& of, bool trains, std::int64_t micro_batch, std::int64_t pieces,
                     std::int64_t tries, std::string what, bool splittable = true)
      : run(of),
        training(trains),
        samples(micro_batch),
        pieces_before(pieces),
        attempts(tries),
        error(std::move(what)),
        can_split(splittable) {}

  const Run& run;
  bool training;               ///< false in an evaluation
  std::int64_t samples;        ///< of the largest micro-batch, or of the evaluation's batch
  std::int64_t pieces_before;  ///< pieces of each micro-batch so far
  std::int64_t attempts;       ///< so far, with this number of pieces
  std::string error;           ///< the allocator's message; the fit ends with it
  bool can_split;              ///< false if the batches' type or the objective allows no pieces

  /// Retries the window, or the evaluation's batch, with each micro-batch split into `pieces`. The fit ends
  /// if no policy calls this.
  void retry(std::int64_t pieces) { pieces_ = pieces; }
  /// Returns the pieces of the next attempt; 0 for none.
  [[nodiscard]] std::int64_t pieces() const { return pieces_; }

 private:
  std::int64_t pieces_ = 0;
};

/// One backward of an update made during backward (`updates_in_backward`), or the end of its window.
///
/// How `correction` and `scale` act, with micro-batches of 8, 8 and 24 samples: the first two losses are
/// differentiated as they are, and the second `scale` is 8/16. The third loss is differentiated times 24/32.
/// Before that, `correction` 1/4 makes 8/32 of the first two gradients, and the third `scale` is 32/40.
struct BackwardContext {
  Run& run;
  std::size_t index;       ///< of the update in the Trainer's list
  std::int64_t number;     ///< of the window's earlier backwards
  std::int64_t length;     ///< micro-batches of a whole window
  bool last;               ///< the window is known to be complete after this backward
  bool vetoed = false;     ///< at the window's end: the update is not made
  double correction = 1;   ///< multiplies the gradients of earlier micro-batches, a power of two
  GradientScale scale{};   ///< turns the sum of the gradients so far into that of the mean so far
  GradientScale factor{};  ///< before_update's factor on the window's gradients; set once `last` is true
  Quantity total = 0.0;    ///< the window's weight so far
  at::Tensor found_inf{};  ///< 0-dim, on a device: not zero if the update must change nothing
};

/// The losses of an update's window, before the update is made.
class WindowLossContext {
 public:
  WindowLossContext(Run& of, std::size_t update, double mean, bool bad, WindowPlace where,
                    WindowRerun* rerun = nullptr)
      : run(of), index(update), loss(mean), non_finite(bad), place(std::move(where)), rerun_(rerun) {}
  WindowLossContext(const WindowLossContext&) = delete;  // a copy's skip_window would have no effect
  WindowLossContext& operator=(const WindowLossContext&) = delete;

  Run& run;
  std::size_t index;  ///< of the update in the Trainer's list
  double loss;        ///< the window's mean over all ranks, without a micro-batch known to be at fault
  bool non_finite;    ///< a loss is NaN or infinite, and no loss scale handles it
  WindowPlace place;  ///< where the micro-batches came from; only the one at fault, if known

  /// Skips the update and restores the model's buffers to their state before the window. The fit goes on even
  /// if a loss is NaN or infinite.
  void skip_window() { skipped_ = true; }
  [[nodiscard]] bool is_skipped() const { return skipped_; }

  /// Returns the handle to rerun the window; null unless a policy's `may_rerun` is true.
  [[nodiscard]] WindowRerun* rerun() const { return rerun_; }

 private:
  WindowRerun* rerun_;
  bool skipped_ = false;
};

/// One evaluation.
struct EvaluationContext {
  const Run& run;
};

/// The end of a window, after its updates. They are already counted (`applied`, `skipped`) if a listed policy
/// has an `after_update` and does not declare `async_after_update`; otherwise just before the next updates.
/// The means of losses include the window either way, unless its update was skipped.
struct WindowContext {
  Run& run;
  std::int64_t micro_batches;
};

/// Memory that a run takes only with its first updates: averages, copies, moments of parameters frozen so
/// far. Policies add theirs.
struct MemoryForecast {
  const Run& run;
  std::int64_t window_length = 1;  ///< micro-batches
  /// `unsafeGetTensorImpl` of parameters that are frozen at first
  std::unordered_set<const void*> trained_later = {};
  std::unordered_set<const void*> frozen = {};  ///< those that are never trained, whatever their flags
  std::int64_t averages = 0;                    ///< bytes of averages of the weights
  std::int64_t copies = 0;  ///< bytes of other copies that policies will keep on the model's device
  bool snapshots = false;   ///< the run will be copied to host memory
  /// Bytes of a window's sums of gradients, if updates are made in backward. Empty: bytes of all gradients.
  std::optional<std::int64_t> gradient_sums = {};

  [[nodiscard]] bool trains(const at::Tensor& parameter) const {
    const void* id = parameter.unsafeGetTensorImpl();
    return frozen.count(id) == 0 && (parameter.requires_grad() || trained_later.count(id) > 0);
  }
};

}  // namespace looptorch
