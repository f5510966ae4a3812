// SPDX-License-Identifier: MIT
// The settings of `whisper_finetune` that save memory, except recomputation: what is trained, the type of the
// weights, and the optimizer's state.
#pragma once

#include <looptorch/adapters/int8_base.hpp>
#include <looptorch/adapters/lora.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/text/trimmed.hpp>
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>

#include "../model/model.hpp"

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// --fit without a size: the device's free memory.
inline constexpr const char* kFitFree = "free";

struct MemoryOptions {
  // ---- Optimizer and weights ----
  std::string optimizer = "adamw";  ///< "adamw", "adamw8bit", "adamwbf16" or "adafactor"
  bool bf16_weights = false;        ///< holds and computes all weights in bf16, except adapters
  /// Applies and frees each gradient as soon as it exists: "sums" accumulates in bf16 sums, "moments" in the
  /// optimizer's moments. "none" applies all gradients after backward.
  std::string update_in_backward = "none";

  // ---- Encoder ----
  bool freeze_encoder = false;  ///< trains the decoder alone
  bool cache_encoder = false;   ///< keeps a frozen encoder's output of each clip in --cache

  // ---- Adapters ----
  std::int64_t lora = 0;    ///< rank of the adapters; 0: none, the weights themselves are trained
  double lora_alpha = 16;   ///< an adapter's output is scaled by lora_alpha / lora
  double lora_dropout = 0;  ///< dropout of an adapter's inputs, from 0 to 0.99
  std::string lora_patterns = "*q_proj,*v_proj";  ///< names of the layers that get adapters, by commas
  bool int8_base = false;                         ///< keeps the weights below adapters in 8 bits

  // ---- Choice by size ----
  std::string fit;  ///< memory for which --fit chooses the others, as "4GB", or kFitFree; empty: no choice

  /// Throws CommandLineError for flags that contradict each other. `has_precision`: forward passes use
  /// another type than that of the weights.
  void check(bool has_precision) const {
    using looptorch::app::CommandLineError;
    if (bf16_weights && lora == 0 && optimizer == "adamw")
      throw CommandLineError(
          "--bf16-weights with --optimizer adamw would lose most updates, which are smaller than half a step "
          "of a bf16 weight: give --optimizer adamwbf16");
    if (holds_bf16() && has_precision)
      throw CommandLineError(
          looptorch::message(bf16_weights ? "--bf16-weights" : "--optimizer adamwbf16",
                             " computes in bf16 by itself: leave out --bf16, --fp16 and --mixed-precision"));
    if (update_in_backward == "moments" && optimizer != "adamw" && optimizer != "adamwbf16")
      throw CommandLineError(
          looptorch::message("--update-in-backward moments adds gradients to moments, and those of ",
                             optimizer, " cannot take them: give --update-in-backward sums"));
    if (cache_encoder && !freeze_encoder)
      throw CommandLineError(
          "--cache-encoder keeps what an encoder makes of a clip, which stays only while the encoder does: "
          "give --freeze-encoder, too");
    const MemoryOptions unset;
    for (const auto& [flag, is_given] : {std::pair{"--lora-alpha", lora_alpha != unset.lora_alpha},
                                         std::pair{"--lora-dropout", lora_dropout != unset.lora_dropout},
                                         std::pair{"--lora-patterns", lora_patterns != unset.lora_patterns}})
      if (lora == 0 && is_given && fit.empty())
        throw CommandLineError(looptorch::message(flag, " is of adapters: give their rank, as --lora 8"));
    if (lora > 0) (void)patterns();
    if (int8_base && lora == 0)
      throw CommandLineError(
          "--int8-base keeps weights in 8 bits, which cannot be trained: give adapters, as --lora 8");
  }

  /// True if gradients are applied during backward, before all of them exist.
  [[nodiscard]] bool in_backward() const { return update_in_backward != "none"; }
  /// True if the weights that are not adapters are bf16.
  [[nodiscard]] bool holds_bf16() const { return bf16_weights || (optimizer == "adamwbf16" && lora == 0); }

  /// Returns the names of the layers that get adapters; with a frozen encoder only the decoder's. Throws
  /// CommandLineError if there are none.
  [[nodiscard]] std::vector<std::string> patterns() const {
    const std::string encoder = "model.encoder.", decoder = "model.decoder.";
    std::vector<std::string> patterns;
    std::istringstream text(lora_patterns);
    for (std::string item; std::getline(text, item, ',');) {
      const std::string pattern(looptorch::trimmed(item));
      if (pattern.empty()) continue;
      if (freeze_encoder && pattern.starts_with(encoder))
        throw looptorch::app::CommandLineError(looptorch::message(
            "--lora-patterns ", pattern, " is of the encoder, which --freeze-encoder leaves as it is"));
      patterns.push_back(freeze_encoder && !pattern.starts_with(decoder) ? decoder + pattern : pattern);
    }
    if (patterns.empty())
      throw looptorch::app::CommandLineError(
          "--lora-patterns names no layers: give some, as \"*q_proj,*v_proj\"");
    return patterns;
  }

  /// Returns the type in which the model is loaded.
  [[nodiscard]] at::ScalarType dtype() const { return holds_bf16() ? at::kBFloat16 : at::kFloat; }

  /// Freezes what is not trained, and adds adapters. Throws UsageError for patterns that match no layer.
  void apply(Whisper& model) const {
    if (freeze_encoder) (void)model->freeze_encoder();
    if (lora > 0)
      (void)looptorch::add_lora(
          *model, {.rank = lora, .alpha = lora_alpha, .dropout = lora_dropout, .patterns = patterns()});
    if (int8_base) (void)looptorch::hold_base_in_int8(*model);
  }

  /// Returns the optimizer of the model's trained parameters.
  [[nodiscard]] std::unique_ptr<looptorch::AnyOptimizer> make_optimizer(Whisper& model, double rate) const {
    const auto trained = trained_by(model);
    if (optimizer == "adamw8bit") return make<looptorch::AdamW8bit>(trained, rate);
    if (optimizer == "adamwbf16") return make<looptorch::AdamWBf16>(trained, rate);
    if (optimizer == "adafactor")
      return std::make_unique<looptorch::Adafactor>(
          trained, looptorch::AdafactorOptions{.lr = rate, .relative_step = false, .scale_parameter = false});
    return make<looptorch::FusedAdamW>(trained, rate);
  }

 private:
  [[nodiscard]] std::vector<at::Tensor> trained_by(Whisper& model) const {
    if (lora == 0) return freeze_encoder ? model->decoder()->parameters() : model->parameters();
    std::vector<at::Tensor> adapters;
    for (const auto& parameter : model->parameters())
      if (parameter.requires_grad()) adapters.push_back(parameter);
    return adapters;
  }

  template <class Optimizer>
  static std::unique_ptr<looptorch::AnyOptimizer> make(const std::vector<at::Tensor>& trained, double rate) {
    return std::make_unique<Optimizer>(trained, typename Optimizer::Options{.lr = rate, .weight_decay = 0.0});
  }
};

}  // namespace whisper
