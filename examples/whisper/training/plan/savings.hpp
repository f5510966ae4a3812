// SPDX-License-Identifier: MIT
// The memory savings of whisper_finetune --fit, in the order in which they are tried, and the words and flags
// that describe a choice to the user.
#pragma once

#include <looptorch/app/training_options.hpp>
#include <looptorch/base/error.hpp>

#include "../options.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

/// The weights that a run trains.
enum class Trained { all_weights, adapters, adapters_of_8_bits };

/// A way to save memory.
struct Saving {
  const char* words;
  void (*apply)(FinetuneOptions&);
  Trained trained = Trained::all_weights;
};

namespace detail {

inline void recompute_encoder(FinetuneOptions& options) {
  if (options.recompute == "none" && !options.memory.freeze_encoder) options.recompute = "encoder";
}
inline void recompute_all(FinetuneOptions& options) { options.recompute = "all"; }
/// True if weights may be held in bf16: the device computes in it, and fp16 was not requested.
[[nodiscard]] inline bool takes_bf16_weights(const FinetuneOptions& options) {
  return options.memory.holds_bf16() ||
         (options.has_bf16 && options.training.precision != looptorch::app::Precision::fp16);
}
/// Sets bf16, or fp16 if it was requested or the device lacks bf16.
inline void use_16bit_autocast(FinetuneOptions& options) {
  using looptorch::app::Precision;
  if (options.memory.holds_bf16() || options.training.precision == Precision::fp16) return;
  options.training.precision = options.has_bf16 ? Precision::bf16 : Precision::fp16;
}
inline void use_8bit_moments(FinetuneOptions& options) { options.memory.optimizer = "adamw8bit"; }
inline void use_bf16_weights(FinetuneOptions& options, const char* optimizer, bool in_backward = false) {
  recompute_all(options);
  if (!takes_bf16_weights(options)) return;
  options.memory.optimizer = optimizer, options.memory.bf16_weights = true;
  if (in_backward) options.memory.update_in_backward = "sums";
  options.training.precision = looptorch::app::Precision::fp32;
}
inline void use_bf16_rest(FinetuneOptions& options) {
  if (!takes_bf16_weights(options)) return;
  options.memory.bf16_weights = true;
  options.training.precision = looptorch::app::Precision::fp32;
}
inline void use_adapters(FinetuneOptions& options) {
  constexpr std::int64_t kRank = 8;
  recompute_all(options);
  options.memory.update_in_backward = "none";
  if (options.memory.lora == 0) options.memory.lora = kRank;
}

/// Calls each of `steps` in turn.
template <auto... steps>
void in_turn(FinetuneOptions& options) {
  (steps(options), ...);
}

}  // namespace detail

/// Returns what --fit tries, cheapest first (docs/memory.md):
/// - 8-bit moments cost no time, and losses stay within noise
/// - 16-bit autocast takes 0.6 of the time, with the same word error rate
/// - recomputation costs one more forward of the layers, 9 to 36 % of a step
/// - weights in bf16 are rounded themselves
/// - adapters learn less, and int8 weights below them are rounded
[[nodiscard]] inline const std::vector<Saving>& savings() {
  using namespace detail;
  static const std::vector<Saving> all{
      {"nothing beside the flags that are given", [](FinetuneOptions&) {}},
      {"8-bit moments", use_8bit_moments},
      {"bf16 autocast", use_16bit_autocast},
      {"bf16 autocast, 8-bit moments", in_turn<use_16bit_autocast, use_8bit_moments>},
      {"the encoder's layers recomputed", recompute_encoder},
      {"the encoder's layers recomputed, bf16 autocast, 8-bit moments",
       in_turn<recompute_encoder, use_16bit_autocast, use_8bit_moments>},
      {"all layers recomputed", recompute_all},
      {"all layers recomputed, 8-bit moments", in_turn<recompute_all, use_8bit_moments>},
      {"all layers recomputed, bf16 autocast", in_turn<recompute_all, use_16bit_autocast>},
      {"all layers recomputed, bf16 autocast, 8-bit moments",
       in_turn<recompute_all, use_16bit_autocast, use_8bit_moments>},
      {"all layers recomputed, weights and moments in bf16",
       [](FinetuneOptions& options) { use_bf16_weights(options, "adamwbf16"); }},
      {"all layers recomputed, weights in bf16, 8-bit moments",
       [](FinetuneOptions& options) { use_bf16_weights(options, "adamw8bit"); }},
      {"all layers recomputed, weights in bf16, 8-bit moments, each gradient applied in backward",
       [](FinetuneOptions& options) { use_bf16_weights(options, "adamw8bit", /*in_backward=*/true); }},
      {"all layers recomputed, weights in bf16, Adafactor",
       [](FinetuneOptions& options) { use_bf16_weights(options, "adafactor"); }},
      {"all layers recomputed, weights in bf16, Adafactor, each gradient applied in backward",
       [](FinetuneOptions& options) { use_bf16_weights(options, "adafactor", /*in_backward=*/true); }},
      {"adapters alone, all layers recomputed", use_adapters, Trained::adapters},
      {"adapters alone, all layers recomputed, weights in bf16", in_turn<use_adapters, use_bf16_rest>,
       Trained::adapters},
      {"adapters alone, all layers recomputed, int8 weights below them",
       [](FinetuneOptions& options) {
         use_adapters(options);
         use_bf16_rest(options);
         options.memory.int8_base = true;
       },
       Trained::adapters_of_8_bits},
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

/// Returns the flags by which `chosen` differs from `given`. Flags of precision exclude each other, so a new
/// one is named "instead of" the old.
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
  add(given.memory.int8_base != chosen.memory.int8_base, "--int8-base");
  add(given.training.batch_size != chosen.training.batch_size, "--batch-size ", chosen.training.batch_size);
  add(given.training.gradient_accumulation != chosen.training.gradient_accumulation,
      "--gradient-accumulation ", chosen.training.gradient_accumulation);
  const auto of_given = given.training.precision, of_chosen = chosen.training.precision;
  add(of_given != of_chosen, detail::flag_of(of_chosen),
      of_given == Precision::fp32 && !given.training.fp32_given ? ""
                                                                : " instead of " + detail::flag_of(of_given));
  return flags;
}

/// Returns `given` with a memory saving and with batches of `batch` clips. That divides the given number, so
/// a step keeps its clips.
[[nodiscard]] inline FinetuneOptions with_saving(FinetuneOptions given, const Saving& saving,
                                                 std::int64_t batch) {
  saving.apply(given);
  auto& training = given.training;
  training.gradient_accumulation *= training.batch_size / batch;
  training.batch_size = batch;
  return given;
}

/// Returns "all layers recomputed, 2 x 4 clips". Names autocast by its type.
[[nodiscard]] inline std::string words_of(const Saving& saving, const FinetuneOptions& chosen) {
  constexpr std::string_view kAutocast = "bf16 autocast";
  std::string words = saving.words;
  if (const auto at = words.find(kAutocast);
      at != words.npos && chosen.training.precision == looptorch::app::Precision::fp16)
    words.replace(at, kAutocast.size(), "fp16 autocast");
  return looptorch::message(words, ", ", chosen.training.batch_size, " x ",
                            chosen.training.gradient_accumulation, " clips");
}

}  // namespace whisper
