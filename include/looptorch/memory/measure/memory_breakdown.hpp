// SPDX-License-Identifier: MIT
// Breaks a peak of memory down into what held it, such as weights or activations. Also names what would lower
// the peak.
#pragma once

#include <looptorch/memory/held_memory.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// The bytes of a peak by what holds them; they add up to the peak.
struct MemoryBreakdown {
  std::int64_t weights = 0;      ///< Parameters and buffers.
  std::int64_t gradients = 0;    ///< Gradients, as far as they existed.
  std::int64_t optimizer = 0;    ///< Moments.
  std::int64_t averages = 0;     ///< AverageWeights.
  std::int64_t activations = 0;  ///< Tensors that forward saved for backward, its batch included.
  std::int64_t workspace = 0;    ///< Temporaries of operators.
  std::int64_t other = 0;        ///< Held outside of windows: data, another model.

  [[nodiscard]] std::int64_t total() const {
    return weights + gradients + optimizer + averages + activations + workspace + other;
  }
  /// Returns names and bytes, in this order.
  [[nodiscard]] std::array<std::pair<std::string_view, std::int64_t>, 7> parts() const {
    return {{{"weights", weights},
             {"gradients", gradients},
             {"optimizer", optimizer},
             {"averages", averages},
             {"activations", activations},
             {"workspace", workspace},
             {"other", other}}};
  }
};

/// Divides a peak. In backward, activations shrink while gradients grow: counts activations in full, and
/// gradients as far as they fit beside them.
[[nodiscard]] inline MemoryBreakdown divide(const MemoryPeak& peak, const HeldMemory& held) {
  MemoryBreakdown parts;
  std::int64_t rest = peak.bytes;
  const auto take = [&rest](std::int64_t& part, std::int64_t bytes) {
    part = std::clamp<std::int64_t>(bytes, 0, rest);
    rest -= part;
  };
  take(parts.weights, held.weights);
  take(parts.optimizer, held.optimizer);
  take(parts.averages, held.averages);
  take(parts.other, peak.held - held.weights - held.optimizer - held.averages);
  const bool in_step = peak.phase == MemoryPhase::forward || peak.phase == MemoryPhase::backward;
  if (peak.phase == MemoryPhase::forward)  // those of the window's earlier micro-batches
    take(parts.gradients, std::min(held.gradients, peak.entry - peak.held));
  if (in_step) take(parts.activations, peak.saved);
  if (peak.phase == MemoryPhase::backward || peak.phase == MemoryPhase::update)
    take(parts.gradients, held.gradients);
  parts.workspace = rest;
  return parts;
}

namespace detail {

/// Returns "1.38 GB", "320 MB" or "12 KB", in decimal units, as graphics cards are sold.
[[nodiscard]] inline std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"bytes", "KB", "MB", "GB"};
  double number = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; unit + 1 < kUnits.size() && (number >= 999.5 || number <= -999.5); ++unit) number /= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit > 0 && number < 99.95 ? "%.3g %s" : "%.0f %s", number,
                kUnits[unit]);
  return text.data();
}

}  // namespace detail

/// Returns "weights 151 MB, gradients 151 MB, ...", without parts that are empty.
[[nodiscard]] inline std::string describe(const MemoryBreakdown& parts) {
  std::string text;
  for (const auto& [name, bytes] : parts.parts())
    if (bytes > 0) text += (text.empty() ? "" : ", ") + std::string(name) + " " + detail::bytes_text(bytes);
  return text;
}

/// Remedies for the parts of a peak, as `advice` quotes them: by default the library's policies and
/// optimizers, for a program's author. A program with flags gives their names. Empty: no remedy.
struct PartRemedies {
  std::string activations = "smaller micro-batches with Accumulate<N>, Checkpointed<Layer>, Autocast<bf16>";
  std::string optimizer =
      "freeze what need not be trained (Freeze), or an optimizer with fewer (AdamW8bit, "
      "Adafactor, FusedSGD)";
  std::string gradients = "freeze what need not be trained (Freeze)";
  std::string averages = "AverageWeights{.offload = true} keeps them on the host; or leave it out";
  std::string workspace = "smaller micro-batches with Accumulate<N>, at::scaled_dot_product_attention";
  std::string other = "look for data or models that stay on the device outside of the run";
  std::string long_inputs = "limit the longest input, or form batches by length (LengthBucketSampler)";
  std::string fragments = "list CacheFlushEvery<K>";  ///< Remedy for a fragmented cache of the allocator.
};

/// Returns what would lower the peak, the greatest part's remedies first. Parts below a tenth have none.
[[nodiscard]] inline std::vector<std::string> advice(const MemoryBreakdown& parts,
                                                     const PartRemedies& words = {}) {
  struct Remedy {
    std::int64_t bytes;
    const char* part;
    const std::string& text;
  };
  const std::array<Remedy, 6> remedies{{
      {parts.activations, "activations: ", words.activations},
      {parts.optimizer, "moments: ", words.optimizer},
      {parts.gradients, "gradients: ", words.gradients},
      {parts.averages, "averages: ", words.averages},
      {parts.workspace, "workspace: ", words.workspace},
      {parts.other, "other tensors: ", words.other},
  }};
  std::vector<const Remedy*> sorted;
  for (const Remedy& remedy : remedies)
    if (remedy.bytes * 10 >= parts.total() && remedy.bytes > 0 && !remedy.text.empty())
      sorted.push_back(&remedy);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Remedy* a, const Remedy* b) { return a->bytes > b->bytes; });
  std::vector<std::string> list;
  for (const Remedy* remedy : sorted) list.push_back(remedy->part + remedy->text);
  return list;
}

}  // namespace looptorch
