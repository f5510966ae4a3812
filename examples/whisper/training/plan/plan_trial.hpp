// SPDX-License-Identifier: MIT
// Describes what `whisper_finetune --fit` found for one choice of memory savings: whether the run fits into
// memory, how many bytes it needs, and the words that tell the user so.
#pragma once

#include <looptorch/app/memory_check.hpp>
#include <looptorch/base/error.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace whisper {

/// Returns the status by which a library of CUDA says that it cannot compute something on the device, such as
/// "CUBLAS_STATUS_NOT_SUPPORTED"; empty for other errors.
[[nodiscard]] inline std::string unsupported_status(std::string_view error) {
  constexpr std::string_view kEnds[] = {"STATUS_NOT_SUPPORTED", "STATUS_ARCH_MISMATCH"};
  for (const std::string_view library : {"CUBLAS", "CUDNN", "CUSPARSE", "CUFFT"})
    for (const std::string_view end : kEnds)
      if (const std::string name = looptorch::message(library, "_", end); error.find(name) != error.npos)
        return name;
  return {};
}

/// The outcome of one choice.
struct PlanTrial {
  std::int64_t needed = 0;
  bool fits = false;
  bool smaller_batch_helps = true;  ///< False if what is held between the steps is too much already.
  bool ran_out = false;             ///< Memory ran out at `needed` bytes; the choice needs more.
  bool stopped = false;             ///< The measurement stopped at `needed` bytes, too many already.
  std::string refused = {};         ///< The status of a library that cannot compute it on this device.
  /// The parts of `needed` besides the steps: the best weights, a snapshot while it is written, waiting
  /// batches. A run that writes no snapshot before its end needs less.
  std::int64_t best_weights = 0, snapshot = 0, loading = 0;
  bool transcribes = false;  ///< `needed` is for transcribing, which takes more than the steps.

  /// True if `needed` is what steps need, not a lower bound.
  [[nodiscard]] bool is_measured() const { return smaller_batch_helps && !ran_out && refused.empty(); }

  /// Returns the parts of `needed`, in brackets; empty if it is only the steps.
  [[nodiscard]] std::string parts() const {
    using looptorch::app::bytes_text;
    if (transcribes) return " (to transcribe)";
    const auto beside = best_weights + snapshot + loading;
    if (beside == 0) return {};
    std::string text = " (steps " + bytes_text(needed - beside);
    for (const auto& [bytes, words] : {std::pair{best_weights, "the best weights"},
                                       {snapshot, "a snapshot while it is written"},
                                       {loading, "batches that wait"}})
      if (bytes > 0) text += looptorch::message(", ", words, " ", bytes_text(bytes));
    return text + ")";
  }

  /// Returns "needs 1.2 GB", or "at least" or "more than" that if it is a lower bound.
  [[nodiscard]] std::string words() const {
    if (!refused.empty()) return "cannot be computed here: " + refused;
    return looptorch::message("needs ",
                              ran_out                           ? "more than "
                              : smaller_batch_helps && !stopped ? ""
                                                                : "at least ",
                              looptorch::app::bytes_text(needed));
  }
};

namespace detail {

/// The memory needed by the choices that do not fit.
class Misfits {
 public:
  void add(const PlanTrial& trial, std::string flags) {
    auto& kept = trial.is_measured() ? measured_ : bound_;
    if (kept && kept->needed <= trial.needed) return;
    kept = trial;
    if (trial.is_measured()) flags_ = std::move(flags);
  }

  /// Returns the lowest need that was measured or, without one, the lowest bound.
  [[nodiscard]] std::string words() const {
    if (!measured_) return bound_ ? "each choice " + bound_->words() : "nothing could be tried";
    return looptorch::message("the least that was measured, ", flags_.empty() ? "what is given" : flags_,
                              ", ", measured_->words());
  }

 private:
  std::optional<PlanTrial> measured_, bound_;
  std::string flags_;  // flags of `measured_`
};

}  // namespace detail

}  // namespace whisper
