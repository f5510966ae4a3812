// SPDX-License-Identifier: MIT
// whisper_finetune --fit SIZE: chooses what saves memory, in order of what it costs, until a run fits. All
// weights are trained as long as that can be made to fit, and adapters only then. A step's clips stay the
// same: smaller batches are accumulated more often.
#pragma once

#include <looptorch/app/flag_values.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/base/error.hpp>

#include "options.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
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
    return std::llround(unit * looptorch::app::parse_number<double>(number, {.above = 0}));
  } catch (const looptorch::app::CommandLineError&) {
    throw looptorch::app::CommandLineError("--fit: \"" + text + "\" is no size, such as 4GB or 900MB");
  }
}

/// A way to save memory, with those before it or instead of them.
struct Saving {
  const char* words;
  void (*apply)(FinetuneOptions&);
};

namespace detail {

inline void recompute_all(FinetuneOptions& options) { options.recompute = "all"; }
/// True if weights may be held in bf16: the device computes in it, and fp16 was not asked for.
[[nodiscard]] inline bool takes_bf16_weights(const FinetuneOptions& options) {
  return options.memory.holds_bf16() ||
         (options.has_bf16 && options.training.precision != looptorch::app::Precision::fp16);
}
/// bf16, or fp16 where that was asked for or the device has nothing else.
inline void use_16bit_products(FinetuneOptions& options) {
  using looptorch::app::Precision;
  recompute_all(options);
  if (options.memory.holds_bf16() || options.training.precision == Precision::fp16) return;
  options.training.precision = options.has_bf16 ? Precision::bf16 : Precision::fp16;
}
inline void use_8bit_moments(FinetuneOptions& options) {
  recompute_all(options);
  options.memory.optimizer = "adamw8bit";
}
inline void use_bf16_weights(FinetuneOptions& options, const char* optimizer, bool in_backward = false) {
  recompute_all(options);
  if (!takes_bf16_weights(options)) return;
  options.memory.optimizer = optimizer, options.memory.bf16_weights = true;
  if (in_backward) options.memory.update_in_backward = "sums";
  options.training.precision = looptorch::app::Precision::fp32;
}
inline void use_adapters(FinetuneOptions& options) {
  constexpr std::int64_t kRank = 8;
  recompute_all(options);
  options.memory.update_in_backward = "none";
  if (options.memory.lora == 0) options.memory.lora = kRank;
}

}  // namespace detail

/// Returns what --fit tries, in order of cost: time first, then precision, then what is learnt.
[[nodiscard]] inline const std::vector<Saving>& savings() {
  static const std::vector<Saving> all{
      {"nothing beside the flags that are given", [](FinetuneOptions&) {}},
      {"the encoder's layers recomputed",
       [](FinetuneOptions& options) {
         if (options.recompute == "none" && !options.memory.freeze_encoder) options.recompute = "encoder";
       }},
      {"all layers recomputed", detail::recompute_all},
      {"all layers recomputed, products in bf16", detail::use_16bit_products},
      {"all layers recomputed, moments in 8 bits", detail::use_8bit_moments},
      {"all layers recomputed, products in bf16, moments in 8 bits",
       [](FinetuneOptions& options) {
         detail::use_8bit_moments(options);
         detail::use_16bit_products(options);
       }},
      {"all layers recomputed, weights and moments in bf16",
       [](FinetuneOptions& options) { detail::use_bf16_weights(options, "adamwbf16"); }},
      {"all layers recomputed, weights in bf16, moments in 8 bits",
       [](FinetuneOptions& options) { detail::use_bf16_weights(options, "adamw8bit"); }},
      {"all layers recomputed, weights in bf16, moments in 8 bits, each gradient applied in backward",
       [](FinetuneOptions& options) {
         detail::use_bf16_weights(options, "adamw8bit", /*in_backward=*/true);
       }},
      {"all layers recomputed, weights in bf16, Adafactor",
       [](FinetuneOptions& options) { detail::use_bf16_weights(options, "adafactor"); }},
      {"all layers recomputed, weights in bf16, Adafactor, each gradient applied in backward",
       [](FinetuneOptions& options) {
         detail::use_bf16_weights(options, "adafactor", /*in_backward=*/true);
       }},
      {"adapters alone, all layers recomputed", detail::use_adapters},
      {"adapters alone, all layers recomputed, weights in bf16",
       [](FinetuneOptions& options) {
         detail::use_adapters(options);
         if (!detail::takes_bf16_weights(options)) return;
         options.memory.bf16_weights = true;
         options.training.precision = looptorch::app::Precision::fp32;
       }},
  };
  return all;
}

namespace detail {

[[nodiscard]] inline std::string flag_of(looptorch::app::Precision precision) {
  using looptorch::app::Precision;
  switch (precision) {
    case Precision::fp32:
      return "--fp32";
    case Precision::bf16:
      return "--bf16";
    case Precision::fp16:
      return "--fp16";
    case Precision::mixed:
      break;
  }
  return "--mixed-precision";
}

}  // namespace detail

/// Returns the flags by which `chosen` differs from `given`. Flags of precision exclude each other, so that
/// one is "instead of" another.
[[nodiscard]] inline std::string flags_between(const FinetuneOptions& given, const FinetuneOptions& chosen) {
  using looptorch::app::Precision;
  std::string flags;
  const auto add = [&](bool differs, const auto&... parts) {
    if (differs) flags += looptorch::message(flags.empty() ? "" : " ", parts...);
  };
  add(given.recompute != chosen.recompute, "--gradient-checkpointing ", chosen.recompute);
  add(given.memory.optimizer != chosen.memory.optimizer, "--optimizer ", chosen.memory.optimizer);
  add(given.memory.bf16_weights != chosen.memory.bf16_weights, "--bf16-weights");
  add(given.memory.update_in_backward != chosen.memory.update_in_backward, "--update-in-backward ",
      chosen.memory.update_in_backward);
  add(given.memory.lora != chosen.memory.lora, "--lora ", chosen.memory.lora);
  add(given.training.batch_size != chosen.training.batch_size, "--batch-size ", chosen.training.batch_size);
  add(given.training.gradient_accumulation != chosen.training.gradient_accumulation,
      "--gradient-accumulation ", chosen.training.gradient_accumulation);
  const auto of_given = given.training.precision, of_chosen = chosen.training.precision;
  add(of_given != of_chosen, detail::flag_of(of_chosen),
      of_given == Precision::fp32 && !given.training.fp32_given ? ""
                                                                : " instead of " + detail::flag_of(of_given));
  return flags;
}

/// The outcome of one choice.
struct FitTrial {
  std::int64_t needed = 0;
  bool fits = false;
  bool by_batch = true;      ///< A smaller batch needs less: it is not all held between the steps.
  bool ran_out = false;      ///< It needs more than `needed`, at which memory ran out.
  std::string refused = {};  ///< The status of a library that cannot compute it on this device.

  /// True if it needs `needed`, not that or more.
  [[nodiscard]] bool is_exact() const { return by_batch && !ran_out && refused.empty(); }

  /// Returns "needs 1.2 GB"; where only a part of it is known, at least or more than that.
  [[nodiscard]] std::string words() const {
    if (!refused.empty()) return "cannot be computed here: " + refused;
    return looptorch::message("needs ",
                              ran_out    ? "more than "
                              : by_batch ? ""
                                         : "at least ",
                              looptorch::app::bytes_text(needed));
  }
};

/// A choice that fits.
struct FitChoice {
  FinetuneOptions options;
  std::string saving;  ///< Saving::words
  std::string flags;   ///< By which it differs from the given options; empty: by none.
  std::int64_t needed = 0;
};

/// Returns `given` with a way to save memory and with batches of `batch` clips, a divisor of those given:
/// the clips of a step stay.
[[nodiscard]] inline FinetuneOptions with_saving(FinetuneOptions given, const Saving& saving,
                                                 std::int64_t batch) {
  saving.apply(given);
  auto& training = given.training;
  training.gradient_accumulation *= training.batch_size / batch;
  training.batch_size = batch;
  return given;
}

/// Returns "all layers recomputed, 2 x 4 clips". Products are called by the type that they have.
[[nodiscard]] inline std::string words_of(const Saving& saving, const FinetuneOptions& chosen) {
  constexpr std::string_view kProducts = "products in bf16";
  std::string words = saving.words;
  if (const auto at = words.find(kProducts);
      at != words.npos && chosen.training.precision == looptorch::app::Precision::fp16)
    words.replace(at, kProducts.size(), "products in fp16");
  return looptorch::message(words, ", ", chosen.training.batch_size, " x ",
                            chosen.training.gradient_accumulation, " clips");
}

namespace detail {

/// True if the flags do not contradict each other.
[[nodiscard]] inline bool can_be(const FinetuneOptions& options) try {
  options.check();
  return true;
} catch (const looptorch::app::CommandLineError&) {
  return false;
}

/// True if a run that was begun as `given` can go on with `chosen`: batches and recomputation are free,
/// precision takes --resume-changed, and all else belongs to what a snapshot holds.
[[nodiscard]] inline bool can_go_on(const FinetuneOptions& given, const FinetuneOptions& chosen) {
  const auto &was = given.memory, &is = chosen.memory;
  return was.optimizer == is.optimizer && was.bf16_weights == is.bf16_weights && was.lora == is.lora &&
         was.update_in_backward == is.update_in_backward &&
         (given.training.precision == chosen.training.precision || given.training.resume_changed);
}

}  // namespace detail

/// The purpose of a choice.
struct FitQuestion {
  std::string asking = "--fit";  ///< The flag that asks, which begins each line.
  double margin = 0;             ///< The share of the memory that is to stay free, for the last line.
  bool resumed = false;          ///< Only what a run from a snapshot can go on with is tried.
};

namespace detail {

/// The memory needed by the choices that do not fit.
class Misfits {
 public:
  void add(const FitTrial& trial, std::string flags) {
    auto& kept = trial.is_exact() ? measured_ : bound_;
    if (kept && kept->needed <= trial.needed) return;
    kept = trial;
    if (trial.is_exact()) flags_ = std::move(flags);
  }

  /// Returns what the least of those needs that were measured to their end; where there is none, what each
  /// needs at least.
  [[nodiscard]] std::string words() const {
    if (!measured_) return bound_ ? "each choice " + bound_->words() : "nothing could be tried";
    return looptorch::message("the least that was measured, ", flags_.empty() ? "what is given" : flags_,
                              ", ", measured_->words());
  }

 private:
  std::optional<FitTrial> measured_, bound_;
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

/// Returns the first choice for which `attempt(options)` says that it fits. Writes a line to `log` for each
/// that was tried, and which was chosen, behind the name of the flag that asks and `cap`. Throws
/// app::DoesNotFit if none does.
[[nodiscard]] inline FitChoice choose_fit(const FinetuneOptions& given, std::int64_t cap,
                                          const std::function<FitTrial(const FinetuneOptions&)>& attempt,
                                          std::ostream& log, const FitQuestion& question = {}) {
  using looptorch::app::bytes_text;
  const std::string begin = question.asking + " " + bytes_text(cap) + ": ";
  std::vector<std::string> tried;
  detail::Misfits misfits;
  for (const Saving& saving : savings()) {
    for (std::int64_t batch = given.training.batch_size;; batch = batch % 2 == 0 ? batch / 2 : 1) {
      auto options = with_saving(given, saving, batch);
      auto flags = flags_between(given, options);
      if (std::find(tried.begin(), tried.end(), flags) != tried.end()) break;
      if (!detail::can_be(options) || (question.resumed && !detail::can_go_on(given, options))) break;
      tried.push_back(flags);
      const FitTrial trial = attempt(options);
      const std::string words = words_of(saving, options);
      if (trial.fits) {
        log << begin << "chooses " << words << ": needs " << bytes_text(trial.needed) << "; "
            << (tried.size() == 1 ? "that costs nothing"
                                  : looptorch::message("of ", tried.size() - 1, " that cost less none fits"))
            << (flags.empty() ? "" : "; the same as " + flags) << std::endl;
        return {std::move(options), saving.words, std::move(flags), trial.needed};
      }
      log << begin << words << ": " << trial.words() << std::endl;
      misfits.add(trial, std::move(flags));
      if (batch == 1 || !trial.by_batch) break;
    }
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
