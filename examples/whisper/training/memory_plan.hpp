// SPDX-License-Identifier: MIT
// whisper_finetune --fit SIZE: tries memory savings, cheapest first, until a run fits. Trains all weights if
// any choice allows that: tries all savings with the given batch, then with smaller ones, since these leave a
// GPU idle. Only then tries adapters, in the same way.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/base/error.hpp>

#include "options.hpp"
#include "savings.hpp"

#include <cctype>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// Returns the bytes that "4GB", "1.8 gb" or "900M" names; without a unit they are GB. A GB is 10^9 bytes.
/// Throws CommandLineError.
[[nodiscard]] inline std::int64_t parse_bytes(const std::string& text) {
  double unit = 1e9;
  std::string number;
  for (const char sign : text) number += static_cast<char>(std::toupper(static_cast<unsigned char>(sign)));
  for (const auto& [name, bytes] :
       {std::pair<std::string_view, double>{"GB", 1e9}, {"MB", 1e6}, {"G", 1e9}, {"M", 1e6}}) {
    if (!number.ends_with(name)) continue;
    number.resize(number.size() - name.size()), unit = bytes;
    while (number.ends_with(' ')) number.pop_back();
    break;
  }
  try {
    return std::llround(unit * looptorch::app::parse_number<double>(number, {.max = 1e6, .above = 0}));
  } catch (const looptorch::app::CommandLineError&) {
    throw looptorch::app::CommandLineError("--fit: \"" + text + "\" is no size, such as 4GB or 900MB");
  }
}

/// The outcome of one choice.
struct PlanTrial {
  std::int64_t needed = 0;
  bool fits = false;
  bool smaller_batch_helps = true;  ///< A smaller batch needs less: not all of it is held between the steps.
  bool ran_out = false;             ///< It needs more than `needed`, where memory ran out.
  bool stopped = false;             ///< It needs at least `needed`, which was enough to refuse it.
  std::string refused = {};         ///< The status of a library that cannot compute it on this device.
  /// The bytes of `needed` besides those of the steps: the best weights, a snapshot while it is written,
  /// batches that wait. A run that writes no snapshot in its middle needs less.
  std::int64_t best_weights = 0, snapshot = 0, loading = 0;
  bool transcribes = false;  ///< `needed` is what transcribing takes: more than the steps.

  /// True if steps were measured that need `needed`.
  [[nodiscard]] bool is_measured() const { return smaller_batch_helps && !ran_out && refused.empty(); }

  /// Returns what `needed` consists of, in brackets; nothing where that is the steps alone.
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

  /// Returns "needs 1.2 GB"; if only a part is known, at least or more than that.
  [[nodiscard]] std::string words() const {
    if (!refused.empty()) return "cannot be computed here: " + refused;
    return looptorch::message("needs ",
                              ran_out                           ? "more than "
                              : smaller_batch_helps && !stopped ? ""
                                                                : "at least ",
                              looptorch::app::bytes_text(needed));
  }
};

/// A choice that fits.
struct PlanChoice {
  FinetuneOptions options;
  std::string saving;  ///< Saving::words
  std::string flags;   ///< Its differences from the given options; empty: none.
  std::int64_t needed = 0;
};

namespace detail {

/// True if the flags do not contradict each other.
[[nodiscard]] inline bool can_be(const FinetuneOptions& options) try {
  options.check();
  return true;
} catch (const looptorch::app::CommandLineError&) {
  return false;
}

/// True if a run begun as `given` can resume with `chosen`: batches and recomputation may change, precision
/// takes --resume-changed, and snapshots fix all else.
[[nodiscard]] inline bool can_go_on(const FinetuneOptions& given, const FinetuneOptions& chosen) {
  const auto &was = given.memory, &is = chosen.memory;
  return was.optimizer == is.optimizer && was.bf16_weights == is.bf16_weights && was.lora == is.lora &&
         was.int8_base == is.int8_base && was.update_in_backward == is.update_in_backward &&
         (given.training.precision == chosen.training.precision || given.training.resume_changed);
}

}  // namespace detail

/// The purpose of a choice.
struct PlanQuestion {
  std::string asking = "--fit";  ///< The asking flag, which begins each line.
  double margin = 0;             ///< The share of the memory to keep free, for the last line.
  bool resumed = false;          ///< Tries only what a run from a snapshot can resume with.
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

  /// Returns the least need of measured steps; if there is none, what each needs at least.
  [[nodiscard]] std::string words() const {
    if (!measured_) return bound_ ? "each choice " + bound_->words() : "nothing could be tried";
    return looptorch::message("the least that was measured, ", flags_.empty() ? "what is given" : flags_,
                              ", ", measured_->words());
  }

 private:
  std::optional<PlanTrial> measured_, bound_;
  std::string flags_;  // of `measured_`
};

}  // namespace detail

/// Returns the name of the status by which a library of CUDA says that it cannot compute something on the
/// device, as "CUBLAS_STATUS_NOT_SUPPORTED"; empty for other errors.
[[nodiscard]] inline std::string unsupported_status(std::string_view error) {
  constexpr std::string_view kEnds[] = {"STATUS_NOT_SUPPORTED", "STATUS_ARCH_MISMATCH"};
  for (const std::string_view library : {"CUBLAS", "CUDNN", "CUSPARSE", "CUFFT"})
    for (const std::string_view end : kEnds)
      if (const std::string name = looptorch::message(library, "_", end); error.find(name) != error.npos)
        return name;
  return {};
}

/// Measures what a choice needs.
using PlanMeasure = std::function<PlanTrial(const FinetuneOptions&)>;

namespace detail {

/// Returns the numbers of clips in a batch to try: `given`, its half, and so on to 1.
[[nodiscard]] inline std::vector<std::int64_t> batches_of(std::int64_t given) {
  std::vector<std::int64_t> batches{given};
  while (batches.back() > 1) batches.push_back(batches.back() % 2 == 0 ? batches.back() / 2 : 1);
  return batches;
}

}  // namespace detail

/// Returns the first choice that fits by `predict` and then, unless empty, by `prove`. Writes a line to `log`
/// for each choice tried, and for the chosen one, after the name of the asking flag and `cap`. Throws
/// app::DoesNotFit if none fits.
[[nodiscard]] inline PlanChoice choose_plan(const FinetuneOptions& given, std::int64_t cap,
                                            const PlanMeasure& predict, std::ostream& log,
                                            const PlanQuestion& question = {},
                                            const PlanMeasure& prove = {}) {
  using looptorch::app::bytes_text;
  const std::string begin = question.asking + " " + bytes_text(cap) + ": ";
  std::set<std::string> tried, too_large;  // with any batch, by the flags with the given one
  detail::Misfits misfits;
  for (const Trained trained : {Trained::all_weights, Trained::adapters, Trained::adapters_of_8_bits})
    for (const std::int64_t batch : detail::batches_of(given.training.batch_size))
      for (const Saving& saving : savings()) {
        if (saving.trained != trained) continue;
        const auto with_given = flags_between(given, with_saving(given, saving, given.training.batch_size));
        if (too_large.contains(with_given)) continue;
        auto options = with_saving(given, saving, batch);
        auto flags = flags_between(given, options);
        if (!detail::can_be(options) || (question.resumed && !detail::can_go_on(given, options))) continue;
        if (!tried.insert(flags).second) continue;
        const std::string words = words_of(saving, options);
        PlanTrial trial = predict(options);
        if (trial.fits && prove) {
          const auto predicted = trial.needed;
          trial = prove(options);
          if (!trial.fits)
            log << begin << words << ": by its shapes it needs " << bytes_text(predicted)
                << ", and a real window " << trial.words() << std::endl;
        } else if (!trial.fits) {
          log << begin << words << ": " << trial.words() << std::endl;
        }
        if (trial.fits) {
          log << begin << "chooses " << words << ": needs " << bytes_text(trial.needed) << trial.parts()
              << "; "
              << (tried.size() == 1
                      ? "that costs nothing"
                      : looptorch::message("of ", tried.size() - 1, " that cost less none fits"))
              << (flags.empty() ? "" : "; the same as " + flags) << std::endl;
          return {std::move(options), saving.words, std::move(flags), trial.needed};
        }
        misfits.add(trial, std::move(flags));
        if (!trial.smaller_batch_helps) too_large.insert(with_given);
      }
  const auto free = std::lround(100 * question.margin);
  throw looptorch::app::DoesNotFit(looptorch::message(
      question.asking, " ", bytes_text(cap),
      free > 0 ? looptorch::message(", of which ", free, " % stay free") : "", ": nothing fits, and ",
      misfits.words(),
      question.resumed ? ": give more; what else saves memory needs a run anew"
                       : ": give more, shorter clips (--max-audio-seconds), or a smaller model"));
}

}  // namespace whisper
