// SPDX-License-Identifier: MIT
// Defines FitOptions, which set how long a fit lasts and what it resumes from, and FitResult, which says how
// the fit ended.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/loop/resume_report.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/state/snapshot/newest_snapshot.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// The length of a fit, and where it begins. `epochs` and `max_steps` are totals over the whole run, earlier
/// fits included; the first one reached ends the fit. With neither, fit trains one more epoch.
struct FitOptions {
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> max_steps = {};
  /// A snapshot (a path, or a result of choose_snapshot), or a folder whose newest intact snapshot is used.
  /// Empty: continues from the Trainer's state. The Trainer must list SnapshotEvery.
  ResumeFrom resume = {};
  /// True: refuses a snapshot of another run. False: loads what fits, and FitResult lists the rest.
  bool strict = true;
  /// Ends this fit as `interrupted` after the first window that ends past this time; a resumed fit continues.
  /// Takes any duration, such as `std::chrono::minutes(50)`. Evaluations and snapshots at the end come on
  /// top.
  std::optional<std::chrono::duration<double>> max_time = {};
  /// True: resumes a run that had other settings: precision, learning rates and schedules, options of an
  /// optimizer, samples a window. FitResult lists each. Another model or other data are still refused.
  bool resume_changed = false;
  /// Called once the run has resumed and can no longer be refused, before the first step.
  std::function<void(const ResumeReport&)> on_resumed = {};
  /// A rehearsal: limits each epoch, and each evaluation until the next fit, to so many batches on each rank.
  /// Every Validate evaluates at the end of the epoch.
  std::optional<std::int64_t> limit_batches = {};
};

/// The result of a fit.
struct FitResult {
  FitStatus status = FitStatus::completed;
  std::int64_t steps = 0;    ///< Windows in the run so far, skipped ones included.
  std::int64_t skipped = 0;  ///< Windows in which an update was vetoed or had no weight.
  double loss = 0.0;  ///< The first update's mean over the last epoch trained; NaN if nothing had weight.
  std::vector<double> losses = {};           ///< Each update's mean, like `loss`.
  std::int64_t epochs = 0;                   ///< Epochs finished in the run so far.
  double seconds = 0.0;                      ///< Wall time of this fit.
  std::optional<ResumeReport> resumed = {};  ///< The snapshot it began from, with `FitOptions::resume`.
  std::string reason = {};                   ///< Why the fit was stopped or interrupted; else empty.
  SkippedSamples skipped_samples = {};       ///< Skipped by its loader since it was made; see OnError.
  int signal = 0;                            ///< The signal that interrupted the fit, on any rank; 0: none.
};

/// The result of one call of `Trainer::step`.
struct StepResult {
  bool window_ended = false;    ///< This micro-batch was the window's last: the updates have been made.
  std::int64_t step = 0;        ///< Windows finished so far.
  bool stop_requested = false;  ///< A policy asked for the end.
  bool interrupted = false;     ///< The end came from outside, as by a signal: resume to continue.
  std::string reason = {};      ///< Why the end was asked for; else empty.
};

namespace detail {

/// Returns the length that these options set, as text to compare among ranks.
inline std::string text_of(const FitOptions& options) {
  const auto of = [](std::optional<std::int64_t> number) {
    return number ? std::to_string(*number) : "none";
  };
  return message("epochs ", of(options.epochs), ", max_steps ", of(options.max_steps),
                 options.limit_batches ? message(", limit_batches ", *options.limit_batches) : "");
}

/// Returns the sum, or the product, of two numbers from 0 on; the largest number on overflow.
inline std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}
inline std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

/// FitOptions resolved for one range of batches and a run that may be under way.
class FitPlan {
 public:
  /// `batches` is the number of batches in an epoch, if known. Throws UsageError for options out of range,
  /// and for several epochs of a single-pass range.
  FitPlan(const FitOptions& options, const Progress& progress, bool repeatable,
          std::optional<std::int64_t> batches, std::int64_t window_length, const Stopwatch& clock = {})
      : max_steps_(options.max_steps),
        epochs_(options.epochs),
        batches_(limited(batches, options.limit_batches)),
        limit_(options.limit_batches),
        first_step_(progress.step),
        began_beyond_(is_beyond(progress)),
        window_length_(window_length),
        max_time_(options.max_time),
        clock_(clock) {
    require_positive("limit_batches", options.limit_batches);
    require_positive("epochs", options.epochs);
    require_positive("max_steps", options.max_steps);
    if (max_time_ && !(max_time_->count() > 0.0))
      throw UsageError(message("fit's max_time must be above 0, got ", max_time_->count(), " s"));
    if (!epochs_ && !(repeatable && max_steps_)) epochs_ = progress.epoch + 1;
    if (!repeatable && *epochs_ > progress.epoch + 1)
      throw UsageError(message(
          "a single-pass range of batches cannot be gone through again, but ", *epochs_ - progress.epoch,
          " epochs are still to be done: give fit a range that can begin again, such as a std::vector "
          "or a loader, or epochs = ",
          progress.epoch + 1));
  }

  /// Returns the plan of a loop of `Trainer::step`, of unknown length.
  [[nodiscard]] static FitPlan of_unknown_length() { return {}; }
  /// Returns the plan of a fit up to step `total`, if known, with unknown batches.
  [[nodiscard]] static FitPlan up_to_step(std::optional<std::int64_t> total) {
    FitPlan plan;
    plan.max_steps_ = total;
    return plan;
  }

  /// Writes the known lengths to `progress`, for policies. Keeps the steps of the last epoch, which a
  /// snapshot restores, unless the number of windows in an epoch has changed.
  void announce(Progress& progress) const {
    progress.batches_per_epoch = batches_;
    const auto windows_per_epoch = batches_ ? std::optional(windows(*batches_)) : std::nullopt;
    if (progress.windows_per_epoch != windows_per_epoch || !progress.steps_per_epoch) {
      progress.windows_per_epoch = progress.steps_per_epoch = windows_per_epoch;
      progress.epoch_begin = progress.step - windows(progress.batch);
    }
    announce_total(progress);
  }

  /// Extends the run's length to the step about to be made: an epoch may have more steps than the last one.
  void count_on_step(Progress& progress) const {
    if (progress.total_steps) progress.total_steps = std::max(*progress.total_steps, progress.step + 1);
  }

  /// Begins the next epoch of `progress`, and corrects the run's length by the steps of the one that ended.
  void end_epoch(Progress& progress) const {
    ++progress.epoch;
    progress.batch = 0;
    const std::int64_t made = progress.step - std::exchange(progress.epoch_begin, progress.step);
    if (progress.steps_per_epoch && made > 0) progress.steps_per_epoch = made;
    announce_total(progress);
  }

  /// Returns the batches of an epoch; empty if the range does not say.
  [[nodiscard]] std::optional<std::int64_t> batches() const { return batches_; }
  /// True if the batch with this number in its epoch exceeds a rehearsal's limit.
  [[nodiscard]] bool skips(std::int64_t number) const { return limit_ && number >= *limit_; }

  /// True if `progress` is at the end of an epoch of known length.
  [[nodiscard]] bool at_last_batch(const Progress& progress) const {
    return batches_ && progress.batch >= *batches_;
  }

  [[nodiscard]] bool ended(const Run& run) const { return run.is_to_end() || at_its_length(run); }
  /// True if the run has reached the planned steps or epochs.
  [[nodiscard]] bool at_its_length(const Run& run) const { return at_max_steps(run) || at_epochs(run); }

  /// True if the run was beyond the planned steps or epochs as the fit began.
  [[nodiscard]] bool began_beyond() const { return began_beyond_; }

  [[nodiscard]] static std::string counted(std::int64_t count, const char* what) {
    return message(count, " ", what, count == 1 ? "" : "s");
  }
  /// Returns the message of a fit that trained nothing.
  [[nodiscard]] std::string idle_text(const Progress& progress) const {
    const bool by_steps = max_steps_ && progress.step >= *max_steps_;
    return message(
        "fit trained nothing: it was to end at ",
        by_steps ? message("step ", *max_steps_) : message("the end of epoch ", *epochs_),
        ", and the run has ", by_steps ? counted(progress.step, "step") : counted(progress.epoch, "epoch"),
        " already. Epochs and steps count over the whole run: raise the number, or omit it to train one more epoch");
  }

  /// Interrupts the run once its time is up, unless the last window ended the fit anyway.
  void limit_time(Run& run) const {
    if (!max_time_ || run.is_to_end() || clock_.seconds() < max_time_->count()) return;
    const bool ends_last_epoch =
        epochs_ && at_last_batch(run.progress()) && run.progress().epoch >= *epochs_ - 1;
    if (at_max_steps(run) || ends_last_epoch) return;
    run.interrupt(message("the time limit of ", max_time_->count(), " s is reached"));
  }

  /// Returns how the fit ended. `before` is the progress as the fit began, before it resumed: a snapshot may
  /// be of an earlier step.
  [[nodiscard]] FitStatus status(const Run& run, const Progress& before) const {
    const Progress& now = run.progress();
    if (run.interruption()) return FitStatus::interrupted;
    if (run.stop_reason()) return FitStatus::stopped;
    const bool is_idle = now.step == first_step_ && now.step == before.step && now.epoch == before.epoch;
    if (at_its_length(run) && is_idle) return FitStatus::nothing_left;
    return at_epochs(run) ? FitStatus::completed : FitStatus::max_steps;
  }

 private:
  FitPlan() = default;
  static std::optional<std::int64_t> limited(std::optional<std::int64_t> batches,
                                             std::optional<std::int64_t> limit) {
    return batches && limit ? std::min(*batches, *limit) : batches;
  }
  void announce_total(Progress& progress) const {
    progress.total_steps = max_steps_;
    if (!progress.steps_per_epoch || !epochs_) return;
    const std::int64_t epochs_left = std::max<std::int64_t>(0, *epochs_ - progress.epoch);
    const std::int64_t by_epochs =
        epochs_left == 0
            ? progress.step
            : std::max(progress.step,
                       saturating_sum(progress.epoch_begin,
                                      saturating_product(epochs_left, *progress.steps_per_epoch)));
    progress.total_steps = max_steps_ ? std::min(*max_steps_, by_epochs) : by_epochs;
  }
  [[nodiscard]] std::int64_t windows(std::int64_t batches) const {
    return batches / window_length_ + (batches % window_length_ != 0);
  }
  static void require_positive(const char* name, std::optional<std::int64_t> value) {
    if (value && *value < 1) throw UsageError(message("fit's ", name, " must be at least 1, got ", *value));
  }
  [[nodiscard]] bool is_beyond(const Progress& progress) const {
    return (max_steps_ && progress.step > *max_steps_) ||
           (epochs_ && (progress.epoch > *epochs_ || (progress.epoch == *epochs_ && progress.batch > 0)));
  }
  bool at_max_steps(const Run& run) const { return max_steps_ && run.progress().step >= *max_steps_; }
  bool at_epochs(const Run& run) const { return epochs_ && run.progress().epoch >= *epochs_; }

  std::optional<std::int64_t> max_steps_;
  std::optional<std::int64_t> epochs_;
  std::optional<std::int64_t> batches_;
  std::optional<std::int64_t> limit_;
  std::int64_t first_step_ = 0;
  bool began_beyond_ = false;
  std::int64_t window_length_ = 1;
  std::optional<std::chrono::duration<double>> max_time_;
  Stopwatch clock_;
};

/// Replaces a resumed fit in a Trainer that takes no snapshots.
struct NotResumed {
  void begin(Run&) const {}
  [[nodiscard]] ResumeReport report() const { return {}; }
};

/// Throws UsageError if a Trainer without snapshots is asked to resume.
inline void require_no_resume(const FitOptions& options) {
  if (!options.resume.empty())
    throw UsageError(message("fit is to resume from ", options.resume.path().string(),
                             ", but the Trainer takes no snapshots: list a SnapshotEvery"));
}

/// Returns why the run was asked to end; empty if it was not.
inline std::string reason_of(const Run& run) {
  return run.interruption().value_or(run.stop_reason().value_or(""));
}

/// Returns the result of a fit; waits for the device, which holds the losses.
inline FitResult fit_result(const Run& run, FitStatus status, const Stopwatch& clock) {
  const Progress& progress = run.progress();
  FitResult result{.status = status,
                   .steps = progress.step,
                   .skipped = progress.skipped,
                   .epochs = progress.epoch,
                   .reason = reason_of(run),
                   .signal = run.signal()};
  for (const UpdateView& view : run.updates()) result.losses.push_back(view.loss.mean());
  result.loss = result.losses.front();
  result.seconds = clock.seconds();
  return result;
}

}  // namespace detail
}  // namespace looptorch
