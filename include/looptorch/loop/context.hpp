// SPDX-License-Identifier: MIT
// The arguments of hooks: one type a moment in the loop (fit > epoch > window > micro-batch).
#pragma once

#include <looptorch/loop/gradients.hpp>
#include <looptorch/loop/loss.hpp>
#include <looptorch/loop/run.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/logical_or.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch {

/// Begin and end of a fit.
struct FitContext {
  Run& run;
  FitStatus status = FitStatus::completed;  ///< meaningful in `on_fit_end`
};

/// After all policies have begun a fit, or a loop of `step`, and before its first window: what `with_trainer`
/// of library policies takes.
struct ReadyContext {
  Run& run;
};

/// Begin and end of an epoch; an epoch that `max_steps` or a stop cuts short has no end.
struct EpochContext {
  Run& run;
};

/// Around one forward pass and its loss.
struct ForwardContext {
  const Run& run;
  bool training;  ///< false in `evaluate`
};

/// Around an evaluation.
struct EvaluationContext {
  const Run& run;
};

/// After a window: its updates are done. One that a device tensor may have vetoed is counted later.
struct WindowContext {
  Run& run;
  std::int64_t micro_batches;
};

/// Around one update of one window.
class UpdateContext {
 public:
  UpdateContext(Run& of, std::size_t index, GradientScale scale, std::vector<at::Tensor>& scratch)
      : run(of), index_(index), scale_(std::move(scale)), gradients_(scratch) {
    gradients_.clear();
  }
  UpdateContext(const UpdateContext&) = delete;  // a copy's veto would be nobody's
  UpdateContext& operator=(const UpdateContext&) = delete;

  Run& run;

  /// Which update this is, in the order of the Trainer's list.
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] const UpdateView& view() const { return run.updates()[index_]; }
  [[nodiscard]] torch::optim::Optimizer& optimizer() const { return *view().optimizer; }

  /// The window's gradients, complete: the pending factor is multiplied in (one pass over them) by this call.
  [[nodiscard]] std::vector<at::Tensor>& gradients() {
    collect();
    scale_.flush(gradients_);
    return gradients_;
  }
  /// The gradients as they lie in memory; times `pending()` they are the window's.
  [[nodiscard]] const std::vector<at::Tensor>& raw_gradients() {
    collect();
    return gradients_;
  }
  [[nodiscard]] const GradientScale& pending() const { return scale_; }
  /// The pending factor, for whoever multiplies `raw_gradients()` by it in a pass of their own; nothing is
  /// pending afterwards.
  [[nodiscard]] GradientScale take_pending() { return std::exchange(scale_, GradientScale{}); }

  /// Multiplies the gradients, without a pass over them if the optimizer can fold the factor in.
  void scale_gradients(double factor) { scale_.multiply(factor); }
  void scale_gradients(const at::Tensor& factor) { scale_.multiply(factor); }
  void scale_gradients(const GradientScale& factor) {
    scale_.multiply(factor.number());
    if (factor.tensor().defined()) scale_.multiply(factor.tensor());
  }

  /// Skips this update: parameters, moments and counts stay as they are.
  void veto(bool skip = true) { skip_ |= skip; }
  /// Skips this update where the 0-dim tensor `found` is not zero. Optimizers that take `found_inf` decide on
  /// the device, and any other waits for it here, once a window. The update counts, and `after_update` runs,
  /// right before the next one: the host may not know earlier. On a CPU that is so too.
  void veto(const at::Tensor& found) {
    settles_late_ = true;
    if (found.is_cpu())
      skip_ |= detail::cpu_number(found) != 0;
    else
      found_ = found_.defined() ? at::logical_or(found_, detail::beside(found_, found.reshape({})))
                                : found.reshape({});
  }

  /// What is known without waiting.
  [[nodiscard]] bool vetoed() const { return skip_; }
  /// 0-dim on the device, not zero for yes; undefined while no policy vetoes with a tensor on a device.
  [[nodiscard]] const at::Tensor& found_inf() const { return found_; }
  /// True once a policy vetoed with a tensor.
  [[nodiscard]] bool settles_late() const { return settles_late_; }

 private:
  void collect() {
    if (gradients_.empty()) detail::collect_gradients(view().parameters, gradients_);
  }

  std::size_t index_;
  GradientScale scale_;
  std::vector<at::Tensor>& gradients_;
  bool skip_ = false;
  bool settles_late_ = false;
  at::Tensor found_;
};

}  // namespace looptorch
