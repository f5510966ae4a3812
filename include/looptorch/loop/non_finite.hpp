// SPDX-License-Identifier: MIT
// A loss that is NaN or infinite ends the run before it reaches the parameters, and names the batch. It costs
// a comparison on a CPU; on a device two small kernels a window, whose answer is read before the next update.
#pragma once

#include <looptorch/error.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A loss was NaN or infinite; the update was not made. Under `Autocast<fp16>` the loss scale takes care of
/// it instead.
struct NonFiniteLoss : Error {
  NonFiniteLoss(const std::string& what, std::int64_t in_step, std::int64_t in_epoch, std::int64_t first,
                std::int64_t last, std::vector<std::int64_t> of_samples)
      : Error(what),
        step(in_step),
        epoch(in_epoch),
        first_batch(first),
        last_batch(last),
        samples(std::move(of_samples)) {}
  std::int64_t step;         ///< Index of the window, from 0.
  std::int64_t epoch;        ///< Index of the epoch, from 0.
  std::int64_t first_batch;  ///< In its epoch, from 0 (-1 in `Trainer::step`); a device knows the window, ...
  std::int64_t last_batch;   ///< ... which ends here. On a CPU both are the same.
  std::vector<std::int64_t> samples;  ///< Dataset indices, where the range's iterator has `indices()`.
};

namespace detail {

/// 0-dim bool on the device of `total`: it is NaN or infinite, since then it is not its own difference from
/// 0.
inline at::Tensor is_non_finite(const at::Tensor& total) {
  at::NoGradGuard no_grad;
  return at::sub(total, total).ne(0);
}

/// Where the micro-batches of one window came from.
class WindowOrigin {
 public:
  static constexpr std::int64_t kUnknown = -1;

  void begin(std::int64_t step, std::int64_t epoch) {
    step_ = step, epoch_ = epoch;
    batches_.clear();
    samples_.clear();
    ends_.clear();
  }

  [[nodiscard]] std::int64_t step() const { return step_; }

  /// The next micro-batch: its number in the epoch, and its samples; none where nobody knows them.
  template <class Indices>
  void add(std::int64_t batch, const Indices& indices) {
    batches_.push_back(batch);
    samples_.insert(samples_.end(), std::begin(indices), std::end(indices));
    ends_.push_back(samples_.size());
  }

  /// The error for micro-batch `number` of the window.
  [[nodiscard]] NonFiniteLoss error(const std::string& update, std::size_t number) const {
    const auto begin = samples_.begin() + static_cast<std::ptrdiff_t>(number == 0 ? 0 : ends_[number - 1]);
    const auto end = samples_.begin() + static_cast<std::ptrdiff_t>(ends_[number]);
    return error(update, static_cast<std::int64_t>(number), 1, {begin, end});
  }
  /// The error for the window as a whole.
  [[nodiscard]] NonFiniteLoss error(const std::string& update) const {
    return error(update, 0, static_cast<std::int64_t>(ends_.size()), samples_);
  }

 private:
  [[nodiscard]] NonFiniteLoss error(const std::string& update, std::int64_t offset, std::int64_t count,
                                    std::vector<std::int64_t> samples) const {
    const std::int64_t first = batches_[static_cast<std::size_t>(offset)];
    const std::int64_t last = batches_[static_cast<std::size_t>(offset + count - 1)];
    const bool known = first != kUnknown;
    std::string text = message("the loss of ", update, " is NaN or infinite in step ", step_);
    if (known)
      text += message(", batch ", first, count > 1 ? message(" to ", last) : "", " of epoch ", epoch_);
    if (!samples.empty()) text += message(" (samples ", list(samples), ")");
    text += ". The update was not made. Look at these samples, lower the learning rate or clip gradients";
    return {text, step_, epoch_, first, last, std::move(samples)};
  }

  static std::string list(const std::vector<std::int64_t>& samples) {
    constexpr std::size_t kShown = 16;
    std::string text;
    for (std::size_t i = 0; i < std::min(samples.size(), kShown); ++i)
      text += (i ? ", " : "") + std::to_string(samples[i]);
    return samples.size() > kShown ? text + ", ..." : text;
  }

  std::int64_t step_ = 0;
  std::int64_t epoch_ = 0;
  std::vector<std::int64_t> batches_;
  std::vector<std::int64_t> samples_;
  std::vector<std::size_t> ends_;  // of each micro-batch in samples_
};

}  // namespace detail
}  // namespace looptorch
