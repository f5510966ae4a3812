// SPDX-License-Identifier: MIT
// JSONL manifests: one utterance a line, as NeMo and most speech corpora have them. Every fault is an error
// that names file and line; nothing is skipped in silence. About 1 us a line beside the check that the audio
// exists.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/file.hpp>
#include <looptorch/state/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// A manifest that cannot be used; the message begins with the file, and the line where there is one.
struct ManifestError : Error {
  using Error::Error;
};

/// One line of a manifest; the members are called as its keys.
struct Utterance {
  std::filesystem::path audio_filepath;
  std::string text;
  std::optional<double> duration{};  ///< seconds
  std::optional<double> start{};     ///< seconds in the audio file; absent: its beginning
  std::optional<double> end{};       ///< seconds; absent: the file's end
  std::string speaker{};             ///< empty where the line has none

  friend bool operator==(const Utterance&, const Utterance&) = default;
};

struct ManifestOptions {
  bool check_files = true;  ///< each audio file must exist
};

/// The utterances of a manifest, at least one. Audio paths are relative to the manifest's folder; blank
/// lines, a byte order mark and keys that `Utterance` lacks are passed over. Throws ManifestError for a line
/// that is not a JSON object in UTF-8, a missing or empty `audio_filepath` or `text`, a wrong type, a
/// duration or range that is not positive, a missing audio file; FileError for a manifest that cannot be
/// read.
[[nodiscard]] std::vector<Utterance> load_manifest(const std::filesystem::path& path,
                                                   ManifestOptions options = {});

/// Writes a manifest that `load_manifest` reads back equal, in one step. Audio beneath its folder is named
/// relative to it, so that the folder can be moved. Throws ManifestError for text that is not UTF-8,
/// FileError where it cannot write.
void save_manifest(const std::filesystem::path& path, std::span<const Utterance> utterances);

namespace detail {

/// Reads one line; errors do not yet know where they are.
class UtteranceReader {
 public:
  UtteranceReader(const Json& line, const std::filesystem::path& folder) : line_(line), folder_(folder) {}

  Utterance read() const {
    if (!line_.is_object()) throw ManifestError(message("expected a JSON object, found ", line_.kind()));
    Utterance utterance{.audio_filepath = (folder_ / filled_string("audio_filepath")).lexically_normal(),
                        .text = filled_string("text"),
                        .duration = seconds("duration"),
                        .start = seconds("start"),
                        .end = seconds("end"),
                        .speaker = present("speaker") ? string("speaker") : ""};
    check(utterance);
    return utterance;
  }

 private:
  bool present(std::string_view key) const { return line_.contains(key) && !line_.at(key).is_null(); }

  std::string string(std::string_view key) const {
    const Json& value = line_.at(key);
    if (!value.is_string())
      throw ManifestError(message("\"", key, "\" must be a string, found ", value.kind()));
    return value.as_string();
  }

  std::string filled_string(std::string_view key) const {
    if (!line_.contains(key)) throw ManifestError(message("\"", key, "\" is missing"));
    std::string value = string(key);
    if (value.find_first_not_of(" \t\r\n") == std::string::npos)
      throw ManifestError(message("\"", key, "\" is empty"));
    return value;
  }

  std::optional<double> seconds(std::string_view key) const {
    if (!present(key)) return std::nullopt;
    const Json& value = line_.at(key);
    if (!value.is_number())
      throw ManifestError(message("\"", key, "\" must be a number, found ", value.kind()));
    return value.as_number();
  }

  static void check(const Utterance& utterance) {
    if (utterance.duration && !(*utterance.duration > 0))
      throw ManifestError(message("\"duration\" is ", *utterance.duration, " s; it must be positive"));
    const double start = utterance.start.value_or(0);
    if (!(start >= 0)) throw ManifestError(message("\"start\" is ", start, " s; it must not be negative"));
    if (utterance.end && !(*utterance.end > start))
      throw ManifestError(
          message("\"end\" is ", *utterance.end, " s; it must come after \"start\", ", start, " s"));
  }

  const Json& line_;
  const std::filesystem::path& folder_;
};

/// The parser counts lines from 1 within its text, which is one line here.
inline std::string without_line(std::string_view json_error) {
  constexpr std::string_view kLine = "line 1, ";
  return std::string(json_error.starts_with(kLine) ? json_error.substr(kLine.size()) : json_error);
}

inline Utterance read_utterance(std::string_view text, const std::filesystem::path& folder,
                                ManifestOptions options) {
  const Json line = Json::parse(text);
  Utterance utterance = UtteranceReader(line, folder).read();
  if (options.check_files && !std::filesystem::is_regular_file(utterance.audio_filepath))
    throw ManifestError("audio file " + utterance.audio_filepath.string() + " does not exist");
  return utterance;
}

/// The path as a manifest in `folder` names it: relative where it lies beneath.
inline std::string name_from(const std::filesystem::path& folder, const std::filesystem::path& audio) {
  const auto whole = std::filesystem::absolute(audio).lexically_normal();
  const auto relative = whole.lexically_relative(std::filesystem::absolute(folder).lexically_normal());
  return relative.empty() || *relative.begin() == ".." ? whole.string() : relative.string();
}

inline Json line_of(const Utterance& utterance, const std::filesystem::path& folder) {
  Json line = Json::object();
  line.set("audio_filepath", name_from(folder, utterance.audio_filepath)).set("text", utterance.text);
  if (utterance.duration) line.set("duration", *utterance.duration);
  if (utterance.start) line.set("start", *utterance.start);
  if (utterance.end) line.set("end", *utterance.end);
  if (!utterance.speaker.empty()) line.set("speaker", utterance.speaker);
  return line;
}

}  // namespace detail

inline std::vector<Utterance> load_manifest(const std::filesystem::path& path, ManifestOptions options) {
  const std::string contents = read_file(path);
  std::string_view rest = contents;
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
  std::vector<Utterance> utterances;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      utterances.push_back(detail::read_utterance(line, path.parent_path(), options));
    } catch (const Error& error) {
      throw ManifestError(
          detail::message(path.string(), ":", number, ": ", detail::without_line(error.what())));
    }
  }
  if (utterances.empty()) throw ManifestError(path.string() + ": holds no utterances");
  return utterances;
}

inline void save_manifest(const std::filesystem::path& path, std::span<const Utterance> utterances) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  std::string contents;
  for (std::size_t i = 0; i < utterances.size(); ++i) {
    try {
      contents += detail::line_of(utterances[i], folder).dump() + "\n";
    } catch (const JsonError& error) {
      throw ManifestError(detail::message(path.string(), ":", i + 1, ": ", error.what()));
    }
  }
  write_file_atomically(path, contents);
}

}  // namespace looptorch
