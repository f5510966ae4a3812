// SPDX-License-Identifier: MIT
// Defines how a learning rate can fall after its warm-up. Each shape, such as LinearDecay or CosineDecay, is
// a type that has only its own options; `ScheduleLr::decay` takes one of them.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>

namespace looptorch {

/// Keeps the full rate.
struct ConstantLr {};

/// Falls in a straight line to the end: transformers' get_linear_schedule_with_warmup.
struct LinearDecay {
  double final_ratio = 0.0;      ///< Share of the full rate at the end and after.
  std::int64_t total_steps = 0;  ///< The end; 0: the fit's `max_steps`, or its epochs of a sized range.
};

/// Falls along half a cosine: transformers' get_cosine_with_min_lr_schedule_with_warmup.
struct CosineDecay {
  double final_ratio = 0.0;
  std::int64_t total_steps = 0;
};

/// Falls by a power of what is left: transformers' get_polynomial_decay_schedule_with_warmup.
struct PolynomialDecay {
  double power = 1.0;  ///< Above 0.
  double final_ratio = 0.0;
  std::int64_t total_steps = 0;
};

/// Drops by a factor at intervals: torch.optim.lr_scheduler.StepLR.
struct StepDecay {
  std::int64_t every = 0;  ///< Steps between two drops, at least 1.
  double factor = 0.1;     ///< Above 0, below 1.
};

/// Falls with one over the square root of the steps, without end: transformers' get_inverse_sqrt_schedule.
struct InverseSqrtDecay {
  /// Steps after the warm-up until the rate is at 1 / sqrt(2); 0: as many as the warm-up, or 10,000 without
  /// one.
  std::int64_t timescale = 0;
};

/// Follows a function: torch.optim.lr_scheduler.LambdaLR.
struct FunctionDecay {
  /// Called with the steps since the warm-up, and those from there to the fit's end, 0 if unknown. Returns
  /// the share of the full rate, at least 0. Must depend only on its arguments, so that a resumed run has the
  /// same rates.
  std::function<double(std::int64_t step, std::int64_t total)> share = {};
};

namespace detail {

template <class Decay>
concept EndingDecay = requires(const Decay& decay) {
  decay.total_steps;
};

/// A position in a decay: steps since the warm-up, steps from there to the end (0 or less without an end),
/// and the steps of the warm-up.
struct DecayPlace {
  std::int64_t steps = 0;
  std::int64_t length = 0;
  std::int64_t warmup = 0;
};

/// Throws UsageError unless `low < value < high`, also for NaN.
inline void require_between(const char* what, double value, double low, double high) {
  if (!(value > low && value < high))
    throw UsageError(message(what, " must be above ", low, " and below ", high, ", got ", value));
}
inline void require_share(const char* what, double value) {
  if (!(value >= 0.0 && value <= 1.0))
    throw UsageError(message(what, " is a share of the full rate in [0, 1], got ", value));
}
inline void require_at_least(const char* what, std::int64_t value, std::int64_t least) {
  if (value < least) throw UsageError(message(what, " must be at least ", least, ", got ", value));
}

template <EndingDecay Decay>
void check_end(const Decay& decay) {
  require_share("ScheduleLr's final_ratio", decay.final_ratio);
  require_at_least("ScheduleLr's total_steps", decay.total_steps, 0);
}
inline void check(const ConstantLr&) {}
inline void check(const LinearDecay& decay) { check_end(decay); }
inline void check(const CosineDecay& decay) { check_end(decay); }
inline void check(const PolynomialDecay& decay) {
  require_between("PolynomialDecay's power", decay.power, 0.0, HUGE_VAL);
  check_end(decay);
}
inline void check(const StepDecay& decay) {
  require_at_least("StepDecay's every", decay.every, 1);
  require_between("StepDecay's factor", decay.factor, 0.0, 1.0);
}
inline void check(const InverseSqrtDecay& decay) {
  require_at_least("InverseSqrtDecay's timescale", decay.timescale, 0);
}
inline void check(const FunctionDecay& decay) {
  if (!decay.share) throw UsageError("FunctionDecay needs a function of the step and of the steps in all");
}

/// Returns the share left of the way from the full rate to the end; `done`, from 0 to 1, is the finished
/// share of the decay's steps.
inline double left(const LinearDecay&, double done) { return 1.0 - done; }
inline double left(const CosineDecay&, double done) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}
inline double left(const PolynomialDecay& decay, double done) { return std::pow(1.0 - done, decay.power); }

/// Returns the share of the full rate at a position in the decay.
template <EndingDecay Decay>
double share_at(const Decay& decay, const DecayPlace& at) {
  const double length = static_cast<double>(std::max<std::int64_t>(1, at.length));
  const double done = std::min(1.0, static_cast<double>(at.steps) / length);
  return decay.final_ratio + (1.0 - decay.final_ratio) * left(decay, done);
}
inline double share_at(const ConstantLr&, const DecayPlace&) { return 1.0; }
inline double share_at(const StepDecay& decay, const DecayPlace& at) {
  return std::pow(decay.factor, static_cast<double>(at.steps / decay.every));
}
inline double share_at(const InverseSqrtDecay& decay, const DecayPlace& at) {
  constexpr std::int64_t kWithoutWarmup = 10'000;
  std::int64_t timescale = decay.timescale > 0 ? decay.timescale : at.warmup;
  if (timescale == 0) timescale = kWithoutWarmup;
  return 1.0 / std::sqrt(1.0 + static_cast<double>(at.steps) / static_cast<double>(timescale));
}
/// Throws UsageError if the function returns a negative, infinite or NaN share.
inline double share_at(const FunctionDecay& decay, const DecayPlace& at) {
  const double share = decay.share(at.steps, std::max<std::int64_t>(0, at.length));
  if (!(share >= 0.0 && std::isfinite(share)))
    throw UsageError(message("FunctionDecay's function must return a share of at least 0, got ", share,
                             " for step ", at.steps));
  return share;
}

}  // namespace detail
}  // namespace looptorch
