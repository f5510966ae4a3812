// SPDX-License-Identifier: MIT
// Converts a manifest's line to an utterance. Both reading and writing are checked by it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/json_fields.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <filesystem>
#include <string>
#include <utility>

namespace looptorch::detail {

/// Returns `(folder / name).lexically_normal()`, faster if the name is normal already.
inline std::filesystem::path resolved_path(const std::filesystem::path& folder, std::string name) {
  const auto is_normal = [](const std::string& path) {
    return !path.starts_with('.') && path.find("/.") == path.npos && path.find("//") == path.npos;
  };
  if (folder.empty() || !is_normal(folder.native()) || !is_normal(name) || name.starts_with('/'))
    return (folder / name).lexically_normal();
  const std::string& before = folder.native();
  return before + (before.ends_with('/') ? "" : "/") + std::move(name);
}

/// Returns the utterance of one line, whose text may be blank if `empty_texts`. Errors lack the line's
/// number, which the caller adds.
inline Utterance utterance_of(const Json& line, const std::filesystem::path& folder,
                              bool empty_texts = false) {
  const JsonFields fields(line);
  Utterance utterance{.audio_filepath = resolved_path(folder, fields.file_name("audio_filepath")),
                      .text = empty_texts ? fields.string("text") : fields.filled_string("text"),
                      .duration = fields.optional_seconds("duration"),
                      .start = fields.optional_seconds("start"),
                      .end = fields.optional_seconds("end"),
                      .speaker = fields.optional_string("speaker"),
                      .language = fields.optional_string("language")};
  if (utterance.duration && !(*utterance.duration > 0))
    throw ManifestError(message("\"duration\" is ", *utterance.duration, " s; it must be positive"));
  const double start = utterance.start.value_or(0);
  if (!(start >= 0)) throw ManifestError(message("\"start\" is ", start, " s; it must not be negative"));
  if (utterance.end && !(*utterance.end > start))
    throw ManifestError(
        message("\"end\" is ", *utterance.end, " s; it must come after \"start\", ", start, " s"));
  return utterance;
}

}  // namespace looptorch::detail
