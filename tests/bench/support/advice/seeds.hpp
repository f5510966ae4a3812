// SPDX-License-Identifier: MIT
// The settings of the guides that the examples follow, each as a command with what it needs, beside what was
// asked of it.
#pragma once

#include "konkanivani.hpp"
#include "music.hpp"
#include "page.hpp"
#include "whisper.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch_bench {

inline const std::string kSeedsTitle = "The guides' settings";

/// A setting of a guide. Without flags those are taken that `--fit` takes on a card of `card` GB, with the
/// guide's batch.
struct Setting {
  std::string who, model, flags;
  double most = 0;  ///< GB of tensors at most; 0: what fits the card.
  std::int64_t card = 0;
  Window window = {};
};

[[nodiscard]] inline std::vector<Setting> settings_of_guides() {
  const std::string one = "--batch-size 1 --gradient-accumulation 16 --gradient-checkpointing all ";
  std::vector<Setting> all{
      {"GTX 980, its guide's own flags", "Whisper small", one + "--fp16", 2.8},
      {"GTX 980, with moments in 8 bits", "Whisper small", one + "--fp16 --optimizer adamw8bit", 2.8},
      {"4 GB, with bf16", "Whisper small", one + "--bf16-weights --optimizer adafactor", 1.5},
      {"T4, the guide's first remedy", "KonkaniVani 192/8+4",
       "--batch-size 1 --gradient-accumulation 8 --mixed-precision", 0, 16},
      {"T4, the original size", "KonkaniVani 256/12+6",
       "--batch-size 2 --gradient-accumulation 4 --mixed-precision", 0, 16},
      {"GAN, 16 GB", "GAN", "--gpu-memory 16 --mixed-precision", 5},
      {"ViT, 16 GB", "ViT-B/16, pretrained, its last three blocks unfrozen in the end",
       "--gpu-memory 16 --mixed-precision", 6}};
  for (const std::int64_t card : {16, 32})
    for (const auto& [model, batches] : {std::pair{"small", std::vector<std::int64_t>{48, 64}},
                                         {"medium", {24, 32}},
                                         {"large-v3", {12, 16}}})
      for (const auto batch : batches)
        all.push_back({.who = (card == 16 ? "RTX 4080, 16 GB, " : "32 GB, ") + std::to_string(batch) + " x 2",
                       .model = std::string("Whisper ") + model,
                       .flags = {},
                       .card = card,
                       .window = {batch, 2}});
  return all;
}

[[nodiscard]] inline std::string seeds_section(const Limits& limits) {
  std::vector<Candidate> candidates;
  for (auto& group : {whisper_candidates(), konkanivani_candidates(), music_candidates()})
    candidates.insert(candidates.end(), group.begin(), group.end());
  std::string text =
      "### " + kSeedsTitle + "\n\n| guide | model | tensors | asked for | flags |\n|---|---|---:|---:|---|\n";
  for (const Setting& setting : settings_of_guides())
    for (const Candidate& candidate : candidates) {
      if (candidate.name != setting.model) continue;
      Needs needs(candidate);
      const auto allowed = setting.most > 0 ? std::llround(setting.most * 1e9) : limits.allowed(setting.card);
      std::optional<Advice> advice;
      if (setting.flags.empty())
        advice = advise(needs, {setting.window}, allowed);
      else
        advice = Advice{.saving = {},
                        .window = {},
                        .flags = setting.flags,
                        .bytes = needs.bytes(setting.flags, allowed + 1'000'000'000'000)};
      text += "| " + setting.who + " | " + setting.model + " | ";
      text += advice ? gigabytes(advice->bytes) + " GB" + (advice->bytes > allowed ? ": **too much**" : "")
                     : "does not fit";
      text +=
          " | at most " + gigabytes(allowed) + " GB | " + (advice ? "`" + advice->flags + "`" : "") + " |\n";
    }
  return text + "\n";
}

}  // namespace looptorch_bench
