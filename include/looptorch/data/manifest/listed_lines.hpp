// SPDX-License-Identifier: MIT
// Computes a fingerprint of each line of a manifest, by which a resumed run finds that its data changed. The
// fingerprint covers file, times, text, speaker and language. Files are named relative to the deepest folder
// that holds all of them, so that a corpus may be moved. Reads no audio.
#pragma once

#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace looptorch {

/// The names of files below the deepest folder that holds all of them.
class NamesBelow {
 public:
  NamesBelow() = default;
  /// Takes the files of `items`, each `path_of(item)`.
  template <class Items, class PathOf>
  NamesBelow(const Items& items, const PathOf& path_of) {
    std::optional<std::string> common;
    for (const auto& item : items) {
      const std::string name = std::filesystem::path(std::invoke(path_of, item)).generic_string();
      if (!common) common = name;
      common->resize(static_cast<std::size_t>(
          std::mismatch(common->begin(), common->end(), name.begin(), name.end()).first - common->begin()));
    }
    if (common) folder_ = common->rfind('/') + 1;  // npos + 1 is 0
  }

  [[nodiscard]] std::string operator()(const std::filesystem::path& path) const {
    const std::string name = path.generic_string();
    return name.substr(std::min(folder_, name.size()));
  }

 private:
  std::size_t folder_ = 0;  // the length of its name, which begins the names of all files
};

/// The fingerprints of a list's lines, for a dataset's `fingerprint(index)`. A duration, which follows from
/// file and times, is not part of them.
class LineFingerprints {
 public:
  LineFingerprints() = default;
  explicit LineFingerprints(const std::vector<Utterance>& lines)
      : names_(lines, &Utterance::audio_filepath) {}

  [[nodiscard]] std::string operator()(const Utterance& line) const {
    const auto bits = [](const std::optional<double>& seconds) {
      return seconds ? std::to_string(std::bit_cast<std::uint64_t>(*seconds)) : "";
    };
    std::string text;
    const auto add = [&text](const std::string& field) {
      text += std::to_string(field.size()) += ':' + field;
    };
    add(names_(line.audio_filepath)), add(bits(line.start)), add(bits(line.end));
    add(line.text), add(line.speaker), add(line.language);
    return text;
  }

 private:
  NamesBelow names_;
};

}  // namespace looptorch
