// SPDX-License-Identifier: MIT
// Writes a manifest as JSON lines; the file appears whole or not at all. Include manifest.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/audio_name.hpp>
#include <looptorch/data/manifest/json_utterance.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/manifest/manifest_layout.hpp>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace looptorch {
namespace detail {

/// Returns the path as a manifest in `folder` names it: relative if it lies beneath.
inline std::string name_from(const std::filesystem::path& folder, const std::filesystem::path& audio) {
  if (audio.empty()) return {};
  const auto whole = normal_path(std::filesystem::absolute(audio));
  const auto relative = whole.lexically_relative(normal_path(std::filesystem::absolute(folder)));
  if (relative.empty() || *relative.begin() == "..") return whole.string();
  return (relative.native().starts_with('~') ? "./" : "") + relative.string();
}

/// Returns the line of an utterance. Throws if it could not be read back.
inline Json line_of(const Utterance& utterance, const std::filesystem::path& folder) {
  Json line = Json::object();
  line.set("audio_filepath", name_from(folder, utterance.audio_filepath)).set("text", utterance.text);
  if (utterance.duration) line.set("duration", *utterance.duration);
  if (utterance.start) line.set("start", *utterance.start);
  if (utterance.end) line.set("end", *utterance.end);
  if (!utterance.speaker.empty()) line.set("speaker", utterance.speaker);
  if (!utterance.language.empty()) line.set("language", utterance.language);
  (void)utterance_of(line, folder);  // throws
  return line;
}

}  // namespace detail

inline void save_manifest(const std::filesystem::path& path, std::span<const Utterance> utterances) {
  if (detail::is_table_name(path))
    throw ManifestError(path.string() + ": manifests are written as JSON lines; name it .jsonl");
  const auto folder = std::filesystem::absolute(path).parent_path();
  std::string contents;
  for (std::size_t i = 0; i < utterances.size(); ++i) {
    try {
      contents += detail::line_of(utterances[i], folder).dump() + "\n";
    } catch (const Error& error) {
      throw ManifestError(message(path.string(), ":", i + 1, ": ", error.what()));
    }
  }
  write_file_atomically(path, contents);
}

}  // namespace looptorch
