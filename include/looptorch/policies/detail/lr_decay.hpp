// SPDX-License-Identifier: MIT
// How a learning rate falls with the steps after its warm-up: the options of `ScheduleLr::decay`, one type a
// shape, so that each lists only what it uses.
#pragma once

#include <looptorch/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace looptorch {

/// Not at all.
struct ConstantLr {};

/// Straight to the end: transformers' get_linear_schedule_with_warmup.
struct LinearDecay {
  double final_ratio = 0.0;      ///< Share of the full rate at the end and after.
  std::int64_t total_steps = 0;  ///< The end; 0: the fit's `max_steps`, or its epochs of a sized range.
};

/// Along half a cosine: transformers' get_cosine_with_min_lr_schedule_with_warmup.
struct CosineDecay {
  double final_ratio = 0.0;
  std::int64_t total_steps = 0;
};

/// By a power of what is left: transformers' get_polynomial_decay_schedule_with_warmup.
struct PolynomialDecay {
  double power = 1.0;  ///< Above 0.
  double final_ratio = 0.0;
  std::int64_t total_steps = 0;
};

/// By a factor again and again: torch.optim.lr_scheduler.StepLR.
struct StepDecay {
  std::int64_t every = 0;  ///< Steps between two drops, at least 1.
  double factor = 0.1;     ///< Above 0, below 1.
};

namespace detail {

template <class Decay>
concept EndingDecay = requires(const Decay& decay) {
  decay.total_steps;
};

/// Throws UsageError unless `low < value < high`, and so for NaN.
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

/// Of the way from the full rate to the end, how much is left when `done` of 1 of the decay is through.
inline double left(const LinearDecay&, double done) { return 1.0 - done; }
inline double left(const CosineDecay&, double done) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}
inline double left(const PolynomialDecay& decay, double done) { return std::pow(1.0 - done, decay.power); }

/// The share of the full rate after `steps` of a decay that takes `decay_steps`.
template <EndingDecay Decay>
double share_after(const Decay& decay, std::int64_t steps, std::int64_t decay_steps) {
  const double length = static_cast<double>(std::max<std::int64_t>(1, decay_steps));
  const double done = std::min(1.0, static_cast<double>(steps) / length);
  return decay.final_ratio + (1.0 - decay.final_ratio) * left(decay, done);
}
inline double share_after(const ConstantLr&, std::int64_t, std::int64_t) { return 1.0; }
inline double share_after(const StepDecay& decay, std::int64_t steps, std::int64_t) {
  return std::pow(decay.factor, static_cast<double>(steps / decay.every));
}

}  // namespace detail
}  // namespace looptorch
