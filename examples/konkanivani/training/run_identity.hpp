// SPDX-License-Identifier: MIT
// Writes the sizes of a run's model and its vocabulary beside its snapshots, as `config.json` and
// `vocabulary.json`. A resumed run is compared with both files before the snapshot itself is read. Also
// prepares a run's output folder.
#pragma once

#include "../decoding/recognizer.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {
namespace detail {

[[nodiscard]] inline std::string only_in(const std::vector<std::string>& a,
                                         const std::vector<std::string>& b) {
  std::vector<std::string> only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  std::string list;
  for (const auto& character : only) list += (list.empty() ? "" : " ") + ("\"" + character + "\"");
  return list.empty() ? "none" : list;
}

}  // namespace detail

/// Creates the folder `snapshots`, and writes its config.json and vocabulary.json.
inline void save_identity(const ModelConfig& config, const Vocabulary& vocabulary,
                          const std::filesystem::path& snapshots) {
  std::filesystem::create_directories(snapshots);
  save_config(snapshots / "config.json", config);
  save_vocabulary(snapshots / "vocabulary.json", vocabulary);
}

/// Throws ConfigError for an output folder with a model of other sizes or of another program. A new run
/// removes the curve of an earlier one.
inline void begin_in(const std::filesystem::path& output, const ModelConfig& config, bool is_new) {
  if (const auto file = output / "config.json"; std::filesystem::exists(file))
    require_same_model(load_config(file), config, file.string());
  if (is_new) std::filesystem::remove(output / "curve.csv");
}

/// Throws VocabularyError or ConfigError that names each difference between the snapshot's run and this one,
/// and what reading the files throws. Call it before the snapshot is read.
inline void require_same_run(const ModelConfig& config, const Vocabulary& vocabulary,
                             const std::filesystem::path& snapshot) {
  const auto folder = (snapshot / "..").lexically_normal();
  const auto file = (folder / "vocabulary.json").string();
  const auto saved = load_vocabulary(file);
  if (saved.unit() != vocabulary.unit())
    throw VocabularyError(file + ": its characters are code points in one run and graphemes in the other");
  if (!(saved == vocabulary))
    throw VocabularyError(looptorch::message(
        file, ": the training texts have other characters than the run's; only there: ",
        detail::only_in(saved.characters(), vocabulary.characters()),
        "; only in these texts: ", detail::only_in(vocabulary.characters(), saved.characters())));
  require_same_model(load_config(folder / "config.json"), config, (folder / "config.json").string());
}

}  // namespace konkanivani
