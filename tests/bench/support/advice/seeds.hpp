// SPDX-License-Identifier: MIT
// Writes a table of the settings that the examples' original guides recommend: the memory that each needs,
// and the most that it may take.
#pragma once

#include "konkanivani.hpp"
#include "music.hpp"
#include "page.hpp"
#include "whisper.hpp"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch_bench {

inline const std::string kSeedsTitle = "The guides' settings";

/// A setting of a guide, and the GB of tensors that it may take; 0: what each of `cards`, in GB, has for
/// them.
struct Setting {
  std::string who, model, flags;
  double most = 0;
  std::vector<std::int64_t> cards = {};
};

[[nodiscard]] inline std::vector<Setting> settings_of_guides() {
  const std::string one = "--batch-size 1 --gradient-accumulation 16 --gradient-checkpointing all ";
  std::vector<Setting> all{
      {"GTX 980, its guide's own flags", "Whisper small", one + "--fp16", 2.8},
      {"GTX 980, with 8-bit moments", "Whisper small", one + "--fp16 --optimizer adamw8bit", 2.8},
      {"4 GB, with bf16", "Whisper small", one + "--bf16-weights --optimizer adafactor", 1.5},
      {"T4, the guide's first remedy",
       "KonkaniVani 192/8+4",
       "--batch-size 1 --gradient-accumulation 8 --mixed-precision",
       0,
       {16}},
      {"T4, the original size",
       "KonkaniVani 256/12+6",
       "--batch-size 2 --gradient-accumulation 4 --mixed-precision",
       0,
       {16}},
      {"GAN, 16 GB", "GAN", "--gpu-memory 16 --mixed-precision", 5},
      {"ViT, 16 GB", "ViT-B/16, pretrained, its last three blocks unfrozen in the end",
       "--gpu-memory 16 --mixed-precision", 6}};
  for (const auto& [model, batches] :
       {std::pair{"small", std::vector<std::int64_t>{48, 64}}, {"medium", {24, 32}}, {"large-v3", {12, 16}}})
    for (const auto batch : batches)
      all.push_back({"RTX 4080 (16 GB) and 32 GB, batches of " + std::to_string(batch),
                     std::string("Whisper ") + model,
                     "--batch-size " + std::to_string(batch) +
                         " --gradient-accumulation 2 --gradient-checkpointing all --optimizer adamw8bit "
                         "--bf16-weights",
                     0,
                     {16, 32}});
  return all;
}

/// Returns the cells of a setting's bytes and of what it may take, with the cards for which it is too much.
[[nodiscard]] inline std::string cells_of(const Setting& setting, std::int64_t bytes, const Limits& limits) {
  if (setting.most > 0)
    return gigabytes(bytes) + " GB" +
           (bytes > std::llround(setting.most * 1e9) ? ", **too much** | " : " | ") +
           gigabytes(std::llround(setting.most * 1e9)) + " GB";
  std::string needed = gigabytes(bytes) + " GB", most;
  for (const std::int64_t card : setting.cards) {
    const auto allowed = limits.allowed(card);
    if (bytes > allowed) needed += ", **too much** for " + std::to_string(card) + " GB";
    most += (most.empty() ? "" : " and ") + gigabytes(allowed);
  }
  return needed + " | " + most + " GB";
}

[[nodiscard]] inline std::string seeds_section(const Limits& limits) {
  std::vector<Candidate> candidates;
  for (auto& group : {whisper_candidates(), konkanivani_candidates(), music_candidates()})
    candidates.insert(candidates.end(), group.begin(), group.end());
  std::map<std::string, Needs> needs;
  for (const Candidate& candidate : candidates) needs.emplace(candidate.name, candidate);
  std::string text =
      "### " + kSeedsTitle +
      "\n\nThe guides of the examples' projects recommend these settings for their GPUs. `at most` is the goal that was "
      "set for\nthat command; without one, it is the memory that the GPU has for tensors.\n\n"
      "| guide | model | tensors | at most | flags |\n|---|---|---:|---:|---|\n";
  for (const Setting& setting : settings_of_guides()) {
    constexpr std::int64_t kNoLimit = 1'000'000'000'000;
    const auto bytes = needs.at(setting.model).bytes(setting.flags, kNoLimit);
    text += "| " + setting.who + " | " + setting.model + " | " + cells_of(setting, bytes, limits) + " | `" +
            setting.flags + "` |\n";
  }
  return text + "\n";
}

}  // namespace looptorch_bench
