// SPDX-License-Identifier: MIT
// Chooses the memory savings of `whisper_finetune --fit SIZE`: tries them, cheapest first, until a run fits.
// First come savings that still train all weights, with the given batch size and then with smaller ones,
// which make worse use of a GPU. Adapters come last, again with the given batch size and then with smaller
// ones.
#pragma once

#include <looptorch/app/memory_check.hpp>
#include <looptorch/base/error.hpp>

#include "../options.hpp"
#include "plan_trial.hpp"
#include "savings.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// A choice that fits.
struct PlanChoice {
  FinetuneOptions options;
  std::string saving;  ///< Saving::words
  std::string flags;   ///< How `options` differ from the given ones, as flags; empty: they do not.
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

/// True if a run begun as `given` can resume with `chosen`: batches and recomputation may differ, precision
/// only with --resume-changed, and nothing else that snapshots depend on.
[[nodiscard]] inline bool can_go_on(const FinetuneOptions& given, const FinetuneOptions& chosen) {
  const auto &was = given.memory, &is = chosen.memory;
  return was.optimizer == is.optimizer && was.bf16_weights == is.bf16_weights && was.lora == is.lora &&
         was.int8_base == is.int8_base && was.update_in_backward == is.update_in_backward &&
         (given.training.precision == chosen.training.precision || given.training.resume_changed);
}

}  // namespace detail

/// The request for a choice.
struct PlanQuestion {
  std::string asking = "--fit";  ///< The asking flag, which begins each line.
  double margin = 0;             ///< The share of memory that stays free, for the last message.
  bool resumed = false;          ///< Tries only what a run from a snapshot can resume with.
};

/// Measures what a choice needs.
using PlanMeasure = std::function<PlanTrial(const FinetuneOptions&)>;

namespace detail {

/// Returns the numbers of clips in a batch to try: `given`, its half, and so on to 1.
[[nodiscard]] inline std::vector<std::int64_t> batches_of(std::int64_t given) {
  std::vector<std::int64_t> batches{given};
  while (batches.back() > 1) batches.push_back(batches.back() % 2 == 0 ? batches.back() / 2 : 1);
  return batches;
}

/// Tries choices in the order of savings, and logs each.
class ChoiceSearch {
 public:
  ChoiceSearch(const FinetuneOptions& given, std::int64_t cap, const PlanMeasure& predict,
               const PlanMeasure& prove, const PlanQuestion& question, std::ostream& log)
      : given_(given), predict_(predict), prove_(prove), question_(question), log_(log), cap_(cap) {}

  [[nodiscard]] PlanChoice first_that_fits() {
    for (const Trained trained : {Trained::all_weights, Trained::adapters, Trained::adapters_of_8_bits})
      for (const std::int64_t batch : batches_of(given_.training.batch_size))
        for (const Saving& saving : savings())
          if (saving.trained == trained)
            if (auto choice = choice_of(saving, batch)) return *std::move(choice);
    fail();
  }

 private:
  /// Returns the choice if it fits. Skips choices that were tried, contradict themselves or cannot fit.
  [[nodiscard]] std::optional<PlanChoice> choice_of(const Saving& saving, std::int64_t batch) {
    const auto with_given = flags_between(given_, with_saving(given_, saving, given_.training.batch_size));
    if (too_large_.contains(with_given)) return {};
    auto options = with_saving(given_, saving, batch);
    auto flags = flags_between(given_, options);
    if (!can_be(options) || (question_.resumed && !can_go_on(given_, options))) return {};
    if (!tried_.insert(flags).second) return {};
    const std::string words = words_of(saving, options);
    const PlanTrial trial = measured(options, words);
    if (trial.fits) {
      report(trial, words, flags);
      return PlanChoice{std::move(options), saving.words, std::move(flags), trial.needed};
    }
    misfits_.add(trial, std::move(flags));
    if (!trial.smaller_batch_helps) too_large_.insert(with_given);
    return {};
  }

  /// Predicts what a choice needs. If it seems to fit, also measures it by `prove_`.
  [[nodiscard]] PlanTrial measured(const FinetuneOptions& options, const std::string& words) {
    PlanTrial trial = predict_(options);
    if (!trial.fits) {
      log_ << begin() << words << ": " << trial.words() << std::endl;
    } else if (prove_) {
      const auto predicted = trial.needed;
      trial = prove_(options);
      if (!trial.fits)
        log_ << begin() << words << ": by its shapes it needs " << looptorch::app::bytes_text(predicted)
             << ", and a real window " << trial.words() << std::endl;
    }
    return trial;
  }

  void report(const PlanTrial& trial, const std::string& words, const std::string& flags) {
    log_ << begin() << "chooses " << words << ": needs " << looptorch::app::bytes_text(trial.needed)
         << trial.parts() << "; "
         << (tried_.size() == 1 ? "that costs nothing"
                                : looptorch::message("of ", tried_.size() - 1, " that cost less none fits"))
         << (flags.empty() ? "" : "; the same as " + flags) << std::endl;
  }

  [[noreturn]] void fail() const {
    const auto free = std::lround(100 * question_.margin);
    throw looptorch::app::DoesNotFit(looptorch::message(
        question_.asking, " ", looptorch::app::bytes_text(cap_),
        free > 0 ? looptorch::message(", of which ", free, " % stay free") : "", ": nothing fits, and ",
        misfits_.words(),
        question_.resumed ? ": give more; what else saves memory needs a run anew"
                          : ": give more, shorter clips (--max-audio-seconds), or a smaller model"));
  }

  [[nodiscard]] std::string begin() const {
    return question_.asking + " " + looptorch::app::bytes_text(cap_) + ": ";
  }

  const FinetuneOptions& given_;
  const PlanMeasure &predict_, &prove_;
  const PlanQuestion& question_;
  std::ostream& log_;
  std::int64_t cap_;
  std::set<std::string> tried_, too_large_;  // by flags; too_large_: by those with the given batch
  Misfits misfits_;
};

}  // namespace detail

/// Returns the first choice that fits by `predict` and, if `prove` is given, by `prove`. Logs each choice
/// that was tried and the chosen one, in lines that begin with the asking flag and `cap`. Throws
/// app::DoesNotFit if none fits.
[[nodiscard]] inline PlanChoice choose_plan(const FinetuneOptions& given, std::int64_t cap,
                                            const PlanMeasure& predict, std::ostream& log,
                                            const PlanQuestion& question = {},
                                            const PlanMeasure& prove = {}) {
  return detail::ChoiceSearch(given, cap, predict, prove, question, log).first_that_fits();
}

}  // namespace whisper
