// SPDX-License-Identifier: MIT
// Defines the errors that end a fit when a loss or a gradient is NaN or infinite. WindowOrigin tells an error
// which batches and samples to name. micro_batch.hpp checks losses on a CPU by a comparison. update_step.hpp
// checks losses on a device by one small kernel per window; the host reads the result before the next update.
// Gradients are checked only if a policy does so.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/loop/window_place.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/sub.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A window whose update was skipped because a number is NaN or infinite. It counts as a skipped step: the
/// next fit continues after it.
struct NonFiniteWindow : Error {
  NonFiniteWindow(const std::string& what, std::int64_t in_step, std::int64_t in_epoch, std::int64_t first,
                  std::int64_t last, std::vector<std::int64_t> of_samples)
      : Error(what),
        step(in_step),
        epoch(in_epoch),
        first_batch(first),
        last_batch(last),
        samples(std::move(of_samples)) {}
  std::int64_t step;         ///< Index of the window, from 0.
  std::int64_t epoch;        ///< Index of the epoch, from 0.
  std::int64_t first_batch;  ///< In its epoch, from 0; -1 in `Trainer::step`. On a device the window's first.
  std::int64_t last_batch;   ///< The same for the window's last. On a CPU equal to `first_batch`.
  std::vector<std::int64_t> samples;  ///< Dataset indices, where the range's iterator has `indices()`.
  std::shared_ptr<const Finding> finding = {};  ///< Autopsy's finding; null without it.
};

/// A loss was NaN or infinite. Under `Autocast<fp16>` the loss scale handles it instead.
struct NonFiniteLoss : NonFiniteWindow {
  using NonFiniteWindow::NonFiniteWindow;
};

/// A policy refused the window's gradients, although its losses are finite: see
/// `ClipGradNorm::on_non_finite`. The window is known, its micro-batch is not.
struct NonFiniteGradient : NonFiniteWindow {
  using NonFiniteWindow::NonFiniteWindow;
};

namespace detail {

/// True unless one of these holds NaN or infinity. Waits for the device.
inline bool all_finite(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_meta() && tensor.is_floating_point() && !at::isfinite(tensor).all().item<bool>())
      return false;
  return true;
}

/// Returns 0, on the device of `total`, or NaN if `total` is NaN or infinite: one kernel.
inline at::Tensor zero_if_finite(const at::Tensor& total) {
  at::NoGradGuard no_grad;
  return at::sub(total, total);
}

/// Returns the subject of an update's error, as `WindowOrigin::error` takes it.
[[nodiscard]] inline std::string subject_of_loss(const std::string& update) {
  return "the loss of " + update + " is";
}
[[nodiscard]] inline std::string subject_of_gradients(const std::string& update) {
  return "the losses are finite, but gradients of " + update + " or their norm are";
}

/// The origin of the micro-batches of one window.
class WindowOrigin {
 public:
  static constexpr std::int64_t kUnknown = -1;

  void begin(std::int64_t step, std::int64_t epoch) {
    step_ = step, epoch_ = epoch;
    elsewhere_.clear();
    finding_ = nullptr;
    batches_.clear();
    samples_.clear();
    ends_.clear();
  }

  [[nodiscard]] std::int64_t step() const { return step_; }

  /// Returns the place as policies see it.
  [[nodiscard]] WindowPlace place() const {
    return {step_,
            epoch_,
            batches_.empty() ? kUnknown : batches_.front(),
            batches_.empty() ? kUnknown : batches_.back(),
            samples_,
            elsewhere_};
  }

  /// Adds the next micro-batch: its number in the epoch, and its samples, empty where they are unknown.
  template <class Indices>
  void add(std::int64_t batch, const Indices& indices) {
    batches_.push_back(batch);
    samples_.insert(samples_.end(), std::begin(indices), std::end(indices));
    ends_.push_back(samples_.size());
  }

  /// Returns the origin of micro-batch `number` of the window alone.
  [[nodiscard]] WindowOrigin narrowed(std::size_t number) const {
    const auto begin = static_cast<std::ptrdiff_t>(number == 0 ? 0 : ends_[number - 1]);
    const auto end = static_cast<std::ptrdiff_t>(ends_[number]);
    WindowOrigin one;
    one.begin(step_, epoch_);
    one.samples_ = {samples_.begin() + begin, samples_.begin() + end};
    one.batches_ = {batches_[number]};
    one.ends_ = {one.samples_.size()};
    return one;
  }

  /// Returns the origin of a window for which another rank reports `text`.
  [[nodiscard]] WindowOrigin elsewhere(const std::string& text) const {
    WindowOrigin other;
    other.begin(step_, epoch_);
    other.elsewhere_ = text;
    return other;
  }

  [[nodiscard]] const std::shared_ptr<const Finding>& finding() const { return finding_; }
  [[nodiscard]] const std::string& explanation() const { return explanation_; }
  /// Returns this origin with a policy's finding, whose sentences replace the advice.
  [[nodiscard]] WindowOrigin explained(std::shared_ptr<const Finding> finding, std::string sentences) const {
    WindowOrigin origin = *this;
    origin.finding_ = std::move(finding);
    origin.explanation_ = std::move(sentences);
    return origin;
  }

  /// Returns this origin with `sentence`, common to all ranks, as its error; if empty, with its own error.
  [[nodiscard]] WindowOrigin reported_as(const std::string& sentence) const {
    WindowOrigin origin = *this;
    origin.elsewhere_ = sentence;
    return origin;
  }

  /// Returns the error for these micro-batches. `subject` reads as "the loss of update is"; `advice` is what
  /// to do.
  template <class Error>
  [[nodiscard]] Error error(const std::string& subject, const std::string& advice) const {
    const WindowPlace at = place();
    const std::string text = elsewhere_.empty()
                                 ? message(subject, " NaN or infinite in ", at.text(),
                                           ". The update was skipped. ", finding_ ? explanation_ : advice)
                                 : elsewhere_;
    Error error{text, step_, epoch_, at.first_batch, at.last_batch, samples_};
    error.finding = finding_;
    return error;
  }

 private:
  std::int64_t step_ = 0;
  std::int64_t epoch_ = 0;
  std::string elsewhere_;  // replaces this window's error by that of another rank, or of all
  std::shared_ptr<const Finding> finding_;
  std::string explanation_;
  std::vector<std::int64_t> batches_;
  std::vector<std::int64_t> samples_;
  std::vector<std::size_t> ends_;  // the end of each micro-batch in samples_
};

}  // namespace detail
}  // namespace looptorch
