// SPDX-License-Identifier: MIT
// Finds unusable clips before training instead of hours into it: reads every file's header, and decodes
// held-out clips once. Unusable clips are listed, or the first one ends the program.
#pragma once

#include <looptorch/app/run/skipped_items.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include "../audio/log_mel_reader.hpp"
#include "manifest_lines.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// How unusable clips are treated: listed and skipped, or the first one ends the program.
enum class OnBadAudio { skip, stop };

inline constexpr std::size_t kListedClips = 5;  ///< skipped clips that are named at a time

/// Why clips were skipped, each clip once.
struct SkippedItems : looptorch::app::SkippedItems {
  SkippedItems() : looptorch::app::SkippedItems({.one = "clip", .many = "clips"}) {}
};

/// How clips are checked: the number of threads, and the treatment of unusable ones.
struct ClipCheck {
  std::int64_t workers = 2;
  OnBadAudio on_bad = OnBadAudio::skip;
};

namespace detail {

/// A clip's fault or, without one, its length.
struct ClipVerdict {
  std::string fault;
  double seconds = 0;
};

/// Verdicts as a dataset, for the loader's threads to compute in order.
template <class Measure>
struct ClipVerdicts {
  const std::vector<looptorch::Utterance>& utterances;
  const Measure& measure;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances.size()); }
  [[nodiscard]] ClipVerdict get(std::int64_t index) const {
    try {
      return {.fault = {}, .seconds = measure(utterances[static_cast<std::size_t>(index)])};
    } catch (const looptorch::Error& error) {
      return {.fault = error.what()};
    }
  }
  [[nodiscard]] std::vector<ClipVerdict> collate(std::span<ClipVerdict> verdicts) const {
    return {std::make_move_iterator(verdicts.begin()), std::make_move_iterator(verdicts.end())};
  }
};

}  // namespace detail

/// Returns the utterances for which `measure` returns a length in seconds, with that as `duration`. Skips an
/// utterance for which `measure` throws a looptorch::Error, and adds its fault to `skipped`, with its line in
/// `lines`. Throws SpeechError instead if `check` stops at faults, and if no utterance is left. Several
/// threads call `measure`.
template <class Measure>
std::vector<looptorch::Utterance> keep_usable(std::vector<looptorch::Utterance> utterances, ClipCheck check,
                                              SkippedItems& skipped, const Measure& measure,
                                              const ManifestLines& lines = {}) {
  const detail::ClipVerdicts<Measure> verdicts{utterances, measure};
  looptorch::PinnedPrefetchLoader loader(
      verdicts, {.batch_size = 16, .workers = check.workers, .pin = false, .starving = 1});
  std::vector<looptorch::Utterance> kept;
  std::string first_fault;
  std::size_t index = 0;
  for (const auto& batch : loader) {
    for (const auto& verdict : batch) {
      auto utterance = utterances[index++];
      if (verdict.fault.empty()) {
        utterance.duration = verdict.seconds;
        kept.push_back(std::move(utterance));
        continue;
      }
      const auto fault = lines.placed(verdict.fault, utterance);
      if (check.on_bad == OnBadAudio::stop) throw SpeechError(fault);
      if (first_fault.empty()) first_fault = fault;
      skipped.add(fault);
    }
  }
  if (kept.empty() && !utterances.empty())
    throw SpeechError(looptorch::message(first_fault, " (no clip of ", utterances.size(), " can be used)"));
  return kept;
}

}  // namespace whisper
