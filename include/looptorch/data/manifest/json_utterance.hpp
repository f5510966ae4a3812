// SPDX-License-Identifier: MIT
// Converts one JSON line of a manifest to an utterance, and checks it. Reading a manifest does this with each
// line; writing does it too, to refuse lines that could not be read back.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/audio_name.hpp>
#include <looptorch/data/manifest/json_fields.hpp>
#include <looptorch/data/manifest/manifest_names.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// The keys for a language, whose values must agree: ours, NeMo's for speech, and NeMo's for translation.
inline constexpr std::string_view kLanguageKeys[] = {"language", "lang", "source_lang", "target_lang"};

[[nodiscard]] inline std::string language_of(const JsonFields& fields) {
  std::string language;
  std::string_view from;
  for (const auto key : kLanguageKeys) {
    auto value = fields.optional_string(key);
    if (value.empty() || value == language) continue;
    if (!language.empty())
      throw ManifestError(message("\"", from, "\" is \"", language, "\" and \"", key, "\" is \"", value,
                                  "\"; speech and text of a line have one language"));
    language = std::move(value), from = key;
  }
  return language;
}

/// Throws ManifestError for two fields of one time that differ by more than rounding.
inline void check_agreement(std::string_view one, double seconds, std::string_view other, double others) {
  constexpr double kRounding = 0.1;
  if (std::abs(seconds - others) <= kRounding) return;
  throw ManifestError(message(one, " is ", seconds, " s and ", other, " is ", others,
                              " s; both say the same, so leave one out"));
}

/// The part of an audio file that a line selects. An absent member means the file's beginning or end.
struct ClipTimes {
  std::optional<double> start, end;
};

/// Returns the part from `start`, which the line calls `start_key`, to `end`. NeMo's `offset` is a start.
/// With a start and no `end`, `duration` is the length of the part. In all other cases `duration` only
/// informs.
[[nodiscard]] inline ClipTimes part_of(const JsonFields& fields, std::string_view start_key) {
  const auto duration = fields.optional_seconds("duration"), offset = fields.optional_seconds("offset");
  ClipTimes part{fields.optional_seconds(start_key), fields.optional_seconds("end")};
  if (duration && !(*duration > 0))
    throw ManifestError(message("\"duration\" is ", *duration, " s; it must be positive"));
  const std::string_view begins = part.start ? "\"start\"" : "\"offset\"";
  if (offset && part.start) check_agreement("\"offset\"", *offset, "\"start\"", *part.start);
  if (!part.start) part.start = offset;
  const double start = part.start.value_or(0);
  if (!(start >= 0)) throw ManifestError(message(begins, " is ", start, " s; it must not be negative"));
  if (offset && duration && part.end)
    check_agreement("\"end\"", *part.end, "\"offset\" with \"duration\"", *offset + *duration);
  if (part.end && !(*part.end > start))
    throw ManifestError(message("\"end\" is ", *part.end, " s; it must come after ",
                                part.start ? begins : "\"start\"", ", ", start, " s"));
  if (!part.start || part.end || !duration) return part;
  part.end = start + *duration;
  if (!(std::isfinite(*part.end) && *part.end > start))
    throw ManifestError(message(begins, " is ", start, " s, too late for a duration of ", *duration, " s"));
  return part;
}

/// Returns the utterance of one line. Its text may be blank if `empty_texts`. Errors lack the line's number,
/// which the caller adds.
inline Utterance utterance_of(const Json& line, const std::filesystem::path& folder,
                              bool empty_texts = false) {
  const JsonFields fields(line);
  auto audio = resolved_path(folder, fields.filled_string(name_in_line(line, "audio_filepath")));
  const auto text_key = name_in_line(line, "text");
  auto text = empty_texts ? fields.string(text_key) : fields.filled_string(text_key);
  const auto [start, end] = part_of(fields, name_in_line(line, "start"));
  return {.audio_filepath = std::move(audio),
          .text = std::move(text),
          .duration = fields.optional_seconds("duration"),
          .start = start,
          .end = end,
          .speaker = fields.optional_string("speaker"),
          .language = language_of(fields)};
}

}  // namespace looptorch::detail
