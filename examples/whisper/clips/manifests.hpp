// SPDX-License-Identifier: MIT
// Reads the data of `whisper_finetune`: manifests, or transcripts with times. Wrong lines are counted, listed
// and skipped; with `strict` the first one throws.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/files_at.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/manifest/manifest_split.hpp>
#include <looptorch/data/manifest/transcript.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include "../decoding/prompt.hpp"
#include "manifest_lines.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <ostream>
#include <utility>
#include <vector>

namespace whisper {

inline constexpr std::size_t kListedLines = 5;  ///< faulty lines that are listed for each file

/// A further check of a line or a segment, which throws a looptorch::Error for a wrong one.
using UtteranceCheck = std::function<void(const looptorch::Utterance&)>;

/// Returns a check that a language is one that language_code takes and, if `is_needed` by a multilingual
/// model, that it is given.
inline UtteranceCheck check_language(const SpecialTokens& special, bool is_needed) {
  return [special, is_needed](const looptorch::Utterance& utterance) {
    const auto& language = utterance.language;
    if (language.empty() && is_needed && !special.languages.empty())
      throw looptorch::ManifestError("\"language\" is missing, and --language auto names none");
    if (!language.empty()) (void)language_code(special, language);
  };
}

/// Returns the usable utterances of a manifest, with `empty_texts` also those without a text. Writes the
/// faults of others to `log`, and adds all lines to `lines`. Throws what looptorch::read_manifest throws.
inline std::vector<looptorch::Utterance> read_utterances(const std::filesystem::path& manifest, bool strict,
                                                         std::ostream& log, const UtteranceCheck& check = {},
                                                         bool empty_texts = false,
                                                         ManifestLines* lines = nullptr) {
  auto read =
      looptorch::read_manifest(manifest, {.strict = strict, .check = check, .empty_texts = empty_texts});
  if (!read.faults.empty())
    log << read.describe_faults(kListedLines) << "\nthey are skipped (--strict stops instead)" << std::endl;
  if (lines != nullptr) lines->add(read);
  return std::move(read.utterances);
}

/// Returns the largest magnitude of an utterance's samples. Throws looptorch::audio::ClipOutside if its end
/// exceeds the recording's by more than rounding.
inline double peak_of(const looptorch::Utterance& utterance) {
  looptorch::audio::DecodeOptions part{.start = utterance.start.value_or(0)};
  if (utterance.end) part.end = *utterance.end;
  const auto [samples_T, rate] = looptorch::audio::decode(utterance.audio_filepath, part);
  const double read_to = part.start + static_cast<double>(samples_T.size(0)) / static_cast<double>(rate);
  looptorch::audio::check_within(utterance, read_to);
  return samples_T.abs().max().item<double>();
}

/// Limits outside which a segment of a transcript is dropped. Windows keep short segments, since they hold
/// all that is said in them.
struct SegmentLimits {
  double max_seconds = 30, min_seconds = 1, min_peak = 0.01;
  std::size_t min_characters = 3;

  static SegmentLimits of_windows(double max_seconds) {
    return {.max_seconds = max_seconds, .min_seconds = 0, .min_peak = 0, .min_characters = 1};
  }
};

/// Returns the segments of a transcript, or of all `.json` in a folder, each with its recording. Drops
/// segments outside the limits and writes them to `log`; adds all lines to `lines`. Throws what
/// looptorch::read_transcript throws.
inline std::vector<looptorch::Utterance> read_transcripts(const std::filesystem::path& place,
                                                          const SegmentLimits& limits, bool strict,
                                                          std::ostream& log, const UtteranceCheck& check = {},
                                                          ManifestLines* lines = nullptr) {
  std::vector<looptorch::Utterance> utterances;
  for (const auto& file : looptorch::files_at<looptorch::ManifestError>(place, ".json")) {
    auto read = looptorch::read_transcript(file, looptorch::recording_of(file),
                                           {.min_characters = limits.min_characters,
                                            .min_seconds = limits.min_seconds,
                                            .max_seconds = limits.max_seconds,
                                            .min_peak = limits.min_peak,
                                            .peak = peak_of,
                                            .strict = strict,
                                            .check = check});
    for (const auto& skipped :
         {read.manifest.describe_faults(kListedLines), read.describe_drops(kListedLines)}) {
      if (!skipped.empty()) log << skipped << std::endl;
    }
    if (lines != nullptr) lines->add(read.manifest, read.drops);
    std::move(read.manifest.utterances.begin(), read.manifest.utterances.end(),
              std::back_inserter(utterances));
  }
  return utterances;
}

/// Splits segments or windows 80/10/10 with the seed 42 of the project's first users. Throws ManifestError,
/// which names `place`, if there are fewer than 10. Errors call the utterances `called`.
inline looptorch::ManifestSplit split_transcripts(std::vector<looptorch::Utterance> utterances,
                                                  const std::filesystem::path& place,
                                                  const char* called = "segments") {
  constexpr std::size_t kFewest = 10;
  if (utterances.size() < kFewest)
    throw looptorch::ManifestError(looptorch::message(place.string(), ": ", utterances.size(), " ", called,
                                                      " can be used; ", kFewest, " are the least to split"));
  return looptorch::split_utterances(std::move(utterances));
}

/// Returns `percent` of the utterances, at least one, chosen by `seed` alone.
inline std::vector<looptorch::Utterance> random_subset(std::vector<looptorch::Utterance> utterances,
                                                       double percent, std::int64_t seed) {
  const auto size = static_cast<std::int64_t>(utterances.size());
  const auto count = std::max<std::int64_t>(1, std::llround(static_cast<double>(size) * percent / 100));
  if (count >= size) return utterances;
  const auto order = looptorch::RandomSampler{.seed = static_cast<std::uint64_t>(seed)}.order(0, size);
  std::vector<looptorch::Utterance> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen.push_back(std::move(utterances[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]));
  }
  return chosen;
}

}  // namespace whisper
